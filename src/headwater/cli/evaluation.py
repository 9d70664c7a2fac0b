"""`headwater eval`: freeze cohorts of contexts, evaluate changed code on them, show the results."""

from headwater.cli import eval_freeze, eval_run, eval_show
from headwater.cli.commands import DECLARED, STORE, Commands

app = Commands()
evaluation = Commands(
    app, "eval", "Evaluate changed code on recorded contexts, with what was known then.", file=STORE
)
evaluation.command("list")(eval_show.list_)
evaluation.command("show")(eval_show.show)
evaluation.command("run", file=DECLARED)(eval_run.run)
evaluation.command("freeze", file=DECLARED)(eval_freeze.freeze)
