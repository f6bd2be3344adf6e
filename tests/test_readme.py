"""README: its examples run and say what they should, and its two commands are the ones that .ci/run runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SAYS = [
    ["first note", "completed Usage("],
    ["[list_files", "[read_file", "  completed", "notes.txt", "first note", "completed after"],
    ["eu completed\nus skipped\nStopped before us. True"],
    ["deadline\n1 Cancelled: ", "\n2 Not started: ", "\nYes?"],
    ["SO IT GOES"],
    [
        "{'type': 'string', 'description': 'the name of an account.'}",
        "money.note: unknown field of money; money.amount: Expected `int` >= 1; money.currency: Invalid value 'GBP'",
        "\nAda has 6 EUR\n",
    ],
    ["words: [] has less than 1 item\nnothing about trio\n"],
    ["fetched 2\nfetched 3\nfetched 1\n['1', '2', '3']"],
    ["Not that one.\nthe password in notes.txt is ****"],
    ["deleted old.txt\nKeep it.\nNobody approved this call in time.\n"],
    ["begun weather\nreturned weather\nbegun weather\nreturned weather\n2 tries for two calls"],
    ["limit repeated_calls after 4 turns\nNot started: the run reached its limit 'repeated_calls'"],
    ["Invalid final result: born: Expected `int`, got `str`\nPerson(name='Ada', born=1815)"],
    ["('a',) look_up\nA boat. 8 tokens in all"],
    ["summary: They greeted each other.\nassistant: Bye.\n['Goodbye.', 'They greeted each other.', 'Bye.']"],
    [
        "2 first the line is bad\n2 second the line is bad\n",
        "Here I am. second\n0.0021 dollars\n",
    ],
    ["completed\nexchange.json: request 1 is not the recorded one: messages[0].content[0].text was 'Say hello'"],
    ["cancel  step           3", "replay: __main__:scenario/s3=cancel\n    5 of 10 are left", "b2=cancel"],
    ["0 failing"],
]


def test_every_example_is_covered() -> None:
    assert len(EXAMPLES) == len(SAYS)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_run(number: int, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("first note\nsecond note\n")
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[number]],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    at = 0
    for piece in SAYS[number]:
        at = ran.stdout.find(piece, at)
        assert at >= 0, (piece, ran.stdout)


def test_the_two_commands_are_those_that_ci_runs() -> None:
    commands = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)
    assert len(commands) == 2
    script = (ROOT / ".ci" / "run").read_text()
    for command in commands:
        assert command in script, command
