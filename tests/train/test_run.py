"""A run ends in the same weights and the same result, however often it is interrupted."""

import errno
import gc
import json
import os
import shutil
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path

import pytest
import torch

from mgrade.nn import load
from mgrade.train import NotFiniteError, Stopped, judge_run, launch, load_recipe, seeds
from mgrade.train.processes import Processes
from mgrade.train.progress import Lines, Reporter
from mgrade.train.run import Run
from small import SETTINGS, small

HERE = Path(__file__).parent


_opened = []


@pytest.fixture(autouse=True)
def _close():
    yield
    while _opened:
        _opened.pop().close()


def prepared(recipe, folder, resume=False, reporter=None, **options):
    run = Run(
        recipe,
        0,
        folder,
        device=torch.device("cpu"),
        processes=Processes(),
        reporter=reporter or Reporter(),
        **options,
    )
    run.open(resume)
    _opened.append(run)
    return run


def trained(recipe, folder):
    run = prepared(recipe, folder)
    assert run.go()
    run.close()
    return run


def same(run, other):
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, other.model.state_dict()[name]), name
    for name, tensor in run.training.state().items():
        assert torch.equal(tensor, other.training.state()[name]), name
    assert run.points == other.points
    assert run.best.step == other.best.step


RECIPES = {
    "flipflop": ("flipflop/mgrade",),
    "dropout": ("flipflop/mgrade", "model.dropout=0.2"),
    "dropped channels": ("flipflop/mgrade", "model.dropout=0.2", "model.dropout_spans=sequence"),
    "sigma": ("flipflop/mgrade", "train.sigma_from=2.0", "train.sigma_until=0.5"),
    "clip and warm-up": ("flipflop/lru-dcls", "train.clip_norm=0.5", "train.warmup=0.2"),
    "epochs": (
        "lorenz/mgrade",
        "train.epochs=4",
        "task.trajectories=80",
        "task.overlap_trajectories=4",
        "task.length=40",
    ),
}


@pytest.mark.parametrize("case", RECIPES)
def test_stopping_anywhere_and_resuming_changes_nothing(tmp_path, case):
    name, *more = RECIPES[case]
    settings = [s for s in SETTINGS if case != "epochs" or not s.startswith(("task.recalls", "train.steps"))]
    recipe = load_recipe(name, [*settings, *more])
    whole = trained(recipe, tmp_path / "whole")
    generator = torch.Generator().manual_seed(0)
    done, legs = False, 0
    while not done:
        run = prepared(recipe, tmp_path / "cut", resume=legs > 0)
        left = int(torch.randint(1, 12, (), generator=generator))
        until = run.step + left
        done = run.go(lambda run=run, until=until: run.step >= until)
        run.close()
        legs += 1
    assert legs > 4
    same(whole, run)


def test_a_run_killed_at_random_moments_ends_in_the_very_same_files(tmp_path):
    """Many `kill -9`, also in the middle of writing a checkpoint, which happens after every step."""
    script = textwrap.dedent(
        """
        import os, random, signal, sys, time
        from pathlib import Path
        import torch
        from mgrade.train import launch
        import mgrade.train.seeds as seeds
        from mgrade.train.progress import Reporter
        from small import small

        torch.set_num_threads(1)
        seeds.reporter = Reporter

        def go(root, seconds):
            launch(small(), seeds=[0], root=Path(root), resume=True, checkpoint_seconds=seconds)

        random.seed(0)
        kills = 0
        while True:
            child = os.fork()
            if not child:
                go(sys.argv[1], 0.0)
                os._exit(0)
            time.sleep(random.uniform(0.05, 0.35))
            if kills < 25:
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if status == 0:
                break
            kills += 1
        go(sys.argv[2], 60.0)
        print(kills)
        """
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-c", script, str(killed), str(whole)]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert out.returncode == 0, out.stderr
    assert int(out.stdout.split()[-1]) >= 5
    model = Path("runs/flipflop/mgrade/seed0/model")
    assert sorted(p.name for p in (killed / model).iterdir()) == sorted(p.name for p in (whole / model).iterdir())
    results = [json.loads((root / "results/flipflop/mgrade/seed0.json").read_text()) for root in (killed, whole)]
    for key in ("metrics", "curves", "chosen_step", "examined", "recipe"):
        assert results[0][key] == results[1][key], key
    log = [(root / model.parent / "metrics.jsonl").read_text() for root in (killed, whole)]
    assert log[0] == log[1]


def test_the_result_says_everything(tmp_path):
    (path,) = launch(small(), seeds=[3], root=tmp_path)
    assert path == tmp_path / "results/flipflop/mgrade/seed3.json"
    found = json.loads(path.read_text())
    assert (found["experiment"], found["model"], found["seed"]) == ("flipflop", "mgrade", 3)
    assert found["recipe"]["train"]["steps"] == 40
    assert 0 <= found["metrics"]["test_accuracy"] <= 1
    assert found["curves"]["step"] == [10, 20, 30, 40]
    assert len(found["curves"]["validation_accuracy"]) == 4
    assert found["parameters"] == sum(
        p.numel() for p in load(tmp_path / "runs/flipflop/mgrade/seed3/model").parameters()
    )
    assert found["state_bytes"] == 4 * (8 + 8)
    assert found["minutes"] > 0
    assert len(found["delays"]) == 1
    assert len(found["delays"][0]["position"]) == len(found["delays"][0]["weight"]) == 8
    assert found["hardware"]["cpu"]
    assert found["versions"]["torch"] == torch.__version__
    assert "commit" in found
    assert set(found["examined"]["recall_by_distance"]) >= {"1", "100", "10000"}


def test_the_result_names_the_source_of_every_leg_as_it_was_when_that_began(tmp_path, monkeypatch):
    recipe = small("flipflop/mgrade")
    monkeypatch.setattr("mgrade.train.run.commit", lambda: "first")
    with pytest.raises(Stopped):
        launch(recipe, seeds=[0], root=tmp_path, max_minutes=1e-9)
    monkeypatch.setattr("mgrade.train.run.commit", lambda: "second")
    (path,) = launch(recipe, seeds=[0], root=tmp_path, resume=True)
    found = json.loads(path.read_text())
    assert found["commit"] == "second"
    assert found["commits"] == ["first", "second"]


def test_a_run_that_another_process_has_ended_is_not_judged_again(tmp_path, monkeypatch):
    recipe = small("flipflop/mgrade")
    (path,) = launch(recipe, seeds=[0], root=tmp_path)
    before, asked = path.read_bytes(), []
    done = seeds._done
    monkeypatch.setattr(seeds, "_done", lambda *given: bool(asked.append(1) or len(asked) > 1) and done(*given))
    monkeypatch.setattr(Run, "finish", None)
    launch(recipe, seeds=[0], root=tmp_path, resume=True)
    assert len(asked) == 2
    assert path.read_bytes() == before


def test_the_checkpoint_that_validation_chose_is_what_is_judged(tmp_path):
    recipe = small("flipflop/mgrade", "train.rate=0.3")
    run = trained(recipe, tmp_path / "run")
    best = max(range(4), key=lambda i: (run.points[i]["validation"]["accuracy"], i))
    assert run.best.step == run.points[best]["step"]
    found = run.finish()
    assert found["chosen_step"] == run.best.step
    again = judge_run(tmp_path / "run", "cpu")
    assert again["test_accuracy"] == found["metrics"]["test_accuracy"]


def test_a_result_that_is_there_is_not_run_again_and_another_recipes_is_not_written_over(tmp_path, capsys):
    (path,) = launch(small(), seeds=[0], root=tmp_path)
    before = path.read_bytes()
    assert " (paper: 0.996 ± 0.003), " in capsys.readouterr().out
    launch(small(), seeds=[0], root=tmp_path)
    out = capsys.readouterr().out
    assert "flipflop/mgrade seed 0 is finished: test_accuracy " in out
    assert out.endswith(f"; {path}\n")
    shutil.rmtree(tmp_path / "runs")
    launch(small(), seeds=[0], root=tmp_path)
    assert capsys.readouterr().out.endswith(f"; {path}, without its model: another --out trains it again\n")
    assert path.read_bytes() == before
    with pytest.raises(ValueError, match=r"is the result of another recipe \(train\.steps is 41 here and 40 there\)"):
        launch(small("flipflop/mgrade", "train.steps=41"), seeds=[0], root=tmp_path)
    assert path.read_bytes() == before


def test_a_run_is_not_begun_anew_over_one_that_is_there(tmp_path):
    run = prepared(small(), tmp_path)
    run.go(lambda: run.step >= 5)
    run.close()
    with pytest.raises(ValueError, match="holds a run at step 5: --resume continues it"):
        prepared(small(), tmp_path)
    differs = r"holds another run: train\.rate is 0\.5 here and 0\.004 there: --resume needs the --set values it began"
    with pytest.raises(ValueError, match=differs):
        prepared(small("flipflop/mgrade", "train.rate=0.5"), tmp_path, resume=True)


def test_equal_seeds_and_a_file_for_a_folder_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"^seeds must differ, got \[0, 0\]$"):
        launch(small(), seeds=[0, 0], root=tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^--out must be a folder, got .*file$"):
        launch(small(), seeds=[0], root=tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("5", "it holds no object$"),
        ("[]", "it holds no object$"),
        ("null", "it holds no object$"),
        ('{"recipe": {"task": [1]}}', "experiment is missing$"),
        ('{"experiment": 3}', "experiment must be text, got 3$"),
        pytest.param("[" * 100_000, "", id="deep"),
    ],
)
def test_a_damaged_recipe_of_a_run_is_refused(tmp_path, text, reason):
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(ValueError, match=rf"recipe\.json: is not the recipe of a run: {reason}"):
        judge_run(tmp_path, "cpu")


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    first = prepared(small(), tmp_path)
    with pytest.raises(ValueError, match="another process is training here"):
        prepared(small(), tmp_path, resume=True)
    first.close()


def test_a_damaged_newest_checkpoint_is_named_and_the_run_still_ends_the_same(tmp_path, capsys):
    whole = trained(small(), tmp_path / "whole")
    run = prepared(small(), tmp_path / "cut", checkpoint_seconds=0.0)
    run.go(lambda: run.step >= 13)
    run.close()
    newest = max((tmp_path / "cut/checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    run = prepared(small(), tmp_path / "cut", resume=True, reporter=Lines())
    assert f"damaged checkpoint {newest}" in capsys.readouterr().out
    assert run.step == 12
    run.go()
    same(whole, run)
    run.close()


def test_a_full_disk_is_one_line_and_the_run_goes_on_later(tmp_path, monkeypatch):
    whole = trained(small(), tmp_path / "whole")
    run = prepared(small(), tmp_path / "cut", checkpoint_seconds=0.0)
    real, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ValueError, match="cannot be written: the disk is full; the one before is intact"):
        run.go()
    run.close()
    monkeypatch.setattr("os.fsync", real)
    run = prepared(small(), tmp_path / "cut", resume=True)
    assert 0 < run.step < 40
    run.go()
    same(whole, run)


def test_a_loss_that_is_not_finite_stops_with_its_step_rate_and_tensor(tmp_path):
    recipe = small("flipflop/mgrade", "train.schedule=constant")
    run = prepared(recipe, tmp_path, checkpoint_seconds=0.0)
    real, calls = run.feed.__call__, []

    class Poisoned:
        steps_per_epoch, digest = None, ""

        def __call__(self, step):
            if step == 17 and not calls:
                calls.append(step)
                with torch.no_grad():
                    run.model.layers[0].recurrence.weight[3, 2] = float("nan")
            return real(step)

    run.feed = Poisoned()
    with pytest.raises(NotFiniteError) as stop:
        run.go()
    line = str(stop.value)
    assert line.startswith("the loss of step 18 is not finite: learning rate 0.004, first tensor: parameter layers.0")
    assert "recurrence.weight" in line
    run.close()
    again = prepared(recipe, tmp_path, resume=True)
    assert again.step == 17
    assert all(torch.isfinite(parameter).all() for parameter in again.model.parameters())


def test_weights_by_class_are_those_of_the_training_set(tmp_path):
    recipe = small("flipflop/mgrade", "train.class_weights=[0.0, 0.0, 0.0, 1.0, 3.0]", "train.steps=2")
    run = prepared(recipe, tmp_path)
    tokens = run.feed(0)[0]
    logits, _ = run.model(tokens[:, :-1])
    reads = tokens[:, :-1] == 1
    expected = torch.nn.functional.cross_entropy(
        logits[reads], tokens[:, 1:][reads], weight=torch.tensor([0.0, 0.0, 0.0, 1.0, 3.0])
    )
    total, weight = run.loss(run.model, tokens)
    assert torch.allclose(total / weight, expected)
    run.close()


def test_nothing_of_a_run_stays_once_it_is_let_go(tmp_path):
    """Its graph and its data may fill a GPU, whose memory the garbage collector knows nothing of."""
    run = prepared(small(), tmp_path)
    run.go()
    kept = [weakref.ref(one) for one in (run, run.feed, run.model, run.training, run.training.optimiser)]
    _opened.remove(run)
    run.close()
    gc.collect()
    gc.disable()
    try:
        del run
        assert [one() for one in kept] == [None] * len(kept)
    finally:
        gc.enable()


def test_sigma_narrows_to_the_models_own(tmp_path):
    run = prepared(small("flipflop/mgrade", "train.sigma_from=3.0", "train.sigma_until=0.5"), tmp_path)
    seen = [run.model.layers[0].conv.sigma]
    real = run._set_width
    run._set_width = lambda: (real(), seen.append(run.model.layers[0].conv.sigma))
    run.go()
    assert seen[0] == 3.0
    assert len(set(seen)) > 10
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == run.model.layers[0].conv.sigma == run.recipe.model.sigma
    assert run.best.step >= 20
    run.close()


def test_what_tensorboard_would_show_is_handed_to_it(tmp_path, monkeypatch):
    from mgrade.train import progress

    shown = []

    class Board:
        def add_scalar(self, name, value, step):
            shown.append((name, step))

        def close(self):
            shown.append("closed")

    monkeypatch.setattr(progress, "_board", lambda folder, begin: shown.append(begin) or Board())
    run = prepared(small(), tmp_path, tensorboard=True)
    run.go(stop=lambda: run.step == 25)
    run.go()
    assert [entry for entry in shown if isinstance(entry, int)] == [0, 21]
    assert ("train/loss", 10) in shown
    assert ("validation/accuracy", 40) in shown
    assert shown[-1] == "closed"
