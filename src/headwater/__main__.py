"""`python -m headwater` is the command line."""

from headwater.cli import main

if __name__ == "__main__":
    main()
