"""What a developer of Headwater needs beside its tests."""
