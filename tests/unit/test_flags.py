"""How a command line is read: pflag's syntax and words."""

from typing import Any

import pytest

from kcm import flags
from kcm.flags import Flag, FlagType


def flag(name: str, kind: FlagType[Any], default: object = None, shorthand: str = "") -> Flag[Any]:
    return Flag(name, kind, default, "", group="Test", shorthand=shorthand)


FLAGS = [
    flag("leader-elect", flags.BOOL, default=True),
    flag("master", flags.STRING, ""),
    flag("kube-api-qps", flags.FLOAT32, 20.0),
    flag("kube-api-burst", flags.INT32, 30),
    flag("secure-port", flags.INT, 10257),
    flag("retry-period", flags.DURATION, 2.0),
    flag("bind-address", flags.IP, "0.0.0.0"),
    flag("controllers", flags.STRINGS, ("*",)),
    flag("vmodule", flags.VMODULE, ()),
    flag("v", flags.LEVEL, 0, "v"),
    flag("quiet", flags.BOOL, False, "q"),
]


@pytest.mark.row("C-001", "C-144")
@pytest.mark.parametrize(
    ("args", "values", "positional"),
    [
        (["--master=a"], {"master": "a"}, []),
        (["--master", "a"], {"master": "a"}, []),
        (["--master", "--foo"], {"master": "--foo"}, []),
        (["--master="], {"master": ""}, []),
        (["--master=a=b"], {"master": "a=b"}, []),
        (["--kube_api_qps=2.5"], {"kube-api-qps": 2.5}, []),
        (["--kube_api-burst", "5"], {"kube-api-burst": 5}, []),
        (["--leader-elect"], {"leader-elect": True}, []),
        (["--leader-elect=false"], {"leader-elect": False}, []),
        (["--leader-elect=T"], {"leader-elect": True}, []),
        (["--leader-elect", "false"], {"leader-elect": True}, ["false"]),
        (["--retry-period=1h2m3s"], {"retry-period": 3723.0}, []),
        (["-v4"], {"v": 4}, []),
        (["-v", "4"], {"v": 4}, []),
        (["-v=4"], {"v": 4}, []),
        (["--v=4"], {"v": 4}, []),
        (["-qv4"], {"quiet": True, "v": 4}, []),
        (["-q=false"], {"quiet": False}, []),
        (["a", "--v=1", "-", "", "b"], {"v": 1}, ["a", "-", "", "b"]),
        (["--v=1", "--", "--v=2"], {"v": 1}, ["--v=2"]),
        (["--bind-address=::ffff:1.2.3.4"], {"bind-address": "1.2.3.4"}, []),
        (["--bind-address", " ::1"], {"bind-address": "::1"}, []),
        (["--bind-address="], {"bind-address": "0.0.0.0"}, []),
    ],
)
def test_forms_of_flags(args: list[str], values: dict[str, object], positional: list[str]) -> None:
    assert flags.parse(FLAGS, args) == (values, positional)


@pytest.mark.row("C-143")
def test_values_may_look_like_flags_and_names_are_never_abbreviated() -> None:
    assert flags.parse(FLAGS, ["--controllers=-foo"])[0] == {"controllers": ("-foo",)}
    assert flags.parse(FLAGS, ["--controllers", "-foo"])[0] == {"controllers": ("-foo",)}
    with pytest.raises(ValueError, match=r"^unknown flag: --controller$"):
        flags.parse(FLAGS, ["--controller=-foo"])


@pytest.mark.row("C-055", "C-146")
def test_repeated_flags_add_to_lists_and_replace_single_values() -> None:
    args = ["--controllers=a,b", "--v=1", "--controllers", "c", "--v=2", "--vmodule=x=1", "--vmodule=y=2,,z=3"]
    assert flags.parse(FLAGS, args)[0] == {
        "controllers": ("a", "b", "c"),
        "v": 2,
        "vmodule": (("x", 1), ("y", 2), ("z", 3)),
    }
    assert flags.parse(FLAGS, ["--controllers="])[0] == {"controllers": ()}


@pytest.mark.row("C-002", "C-043")
@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--foo"], "unknown flag: --foo"),
        (["--foo_bar=1"], "unknown flag: --foo_bar"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["-qxv"], "unknown shorthand flag: 'x' in -xv"),
        (["--=x"], "bad flag syntax: --=x"),
        (["---"], "bad flag syntax: ---"),
        (["--master"], "flag needs an argument: --master"),
        (["-qv"], "flag needs an argument: 'v' in -v"),
        (
            ["--kube-api-qps=abc"],
            'invalid argument "abc" for "--kube-api-qps" flag: strconv.ParseFloat: parsing "abc": ',
        ),
        (
            ["--kube-api-burst=1.5"],
            'invalid argument "1.5" for "--kube-api-burst" flag: strconv.ParseInt: parsing "1.5": ',
        ),
        (
            ["--leader-elect=foo"],
            'invalid argument "foo" for "--leader-elect" flag: strconv.ParseBool: parsing "foo": ',
        ),
        (["-v=x"], 'invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": '),
        (["-v="], 'invalid argument "=" for "-v, --v" flag: strconv.ParseUint: parsing "=": '),
        (["--v=-1"], 'invalid argument "-1" for "-v, --v" flag: strconv.ParseUint: parsing "-1": '),
    ],
)
def test_what_cannot_be_read_is_told_in_pflags_words(args: list[str], problem: str) -> None:
    if problem.endswith(": "):
        problem += "invalid syntax"
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - compared as a whole below
        flags.parse(FLAGS, args)
    assert str(refusal.value) == problem


@pytest.mark.parametrize(
    ("arg", "problem"),
    [
        ("--retry-period=5", 'time: missing unit in duration "5"'),
        ("--secure-port=99999999999999999999", 'strconv.ParseInt: parsing "99999999999999999999": value out of range'),
        ("--bind-address=fe80::1%eth0", 'failed to parse IP: "fe80::1%eth0"'),
        ("--bind-address=010.1.1.1", 'failed to parse IP: "010.1.1.1"'),
        ("--vmodule=a", '"a" does not have the pattern=N format'),
        ("--vmodule=a=1=2", '"a=1=2" does not have the pattern=N format'),
        ("--vmodule=a=x", 'parsing verbosity in "a=x": strconv.ParseUint: parsing "x": invalid syntax'),
    ],
)
def test_the_cause_follows_the_flag(arg: str, problem: str) -> None:
    name, _, value = arg.partition("=")
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - compared as a whole below
        flags.parse(FLAGS, [arg])
    assert str(refusal.value) == f'invalid argument "{value}" for "{name}" flag: {problem}'


def test_the_first_bad_value_is_reported_even_if_a_good_one_follows() -> None:
    with pytest.raises(ValueError, match='invalid argument "a" for "--secure-port" flag'):
        flags.parse(FLAGS, ["--secure-port=a", "--secure-port=1", "--foo"])


def test_help_is_wrapped_for_a_terminal_but_not_for_a_pipe() -> None:
    long = Flag("long", flags.INT32, 5, "word " * 10 + "end", group="Test")
    short = Flag("s", flags.BOOL, False, "one\ntwo", group="Test", shorthand="s")
    assert list(flags.help_lines([long, short], columns=0)) == [
        "      --long int32   " + "word " * 10 + "end (default 5)",
        "  -s, --s            one\n                     two",
    ]
    wrapped = next(iter(flags.help_lines([long, short], columns=50)))
    assert [len(line) <= 50 for line in wrapped.split("\n")] == [True, True, True]
    assert wrapped.split("\n")[1].startswith(" " * 21 + "word")
