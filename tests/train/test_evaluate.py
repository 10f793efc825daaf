"""Evaluation counts every example once, in batches of any size."""

import torch

from mgrade.nn import Model
from mgrade.train.evaluate import evaluate, precision, rows_at_once
from mgrade.train.processes import Processes
from small import small


def test_the_size_of_a_batch_does_not_matter_and_the_last_one_counts():
    recipe = small()
    model = Model(recipe.model)
    examples = recipe.task.draw("test", 13, torch.Generator().manual_seed(0))
    whole = evaluate(model, recipe.task, examples, 13, Processes())
    hits, reads = recipe.task.judge(model.eval(), *examples)["accuracy"]
    assert whole["accuracy"] == float(hits) / float(reads)
    for batch in (1, 4, 100):
        assert evaluate(model, recipe.task, examples, batch, Processes()) == whole


def test_a_gpu_takes_as_many_rows_at_once_as_a_fixed_number_of_activations_allows():
    assert rows_at_once(64, 1024, 128) == 1024
    assert rows_at_once(64, 2**20, 128) == 64  # what training had room for
    assert rows_at_once(64, 1, 8) == rows_at_once(64, 0, 8) == 4096


def test_evaluation_leaves_the_model_as_it_was():
    recipe = small("flipflop/mgrade", "model.dropout=0.5")
    model = Model(recipe.model).train()
    examples = recipe.task.draw("test", 4, torch.Generator().manual_seed(0))
    assert evaluate(model, recipe.task, examples, 2, Processes()) == evaluate(
        model, recipe.task, examples, 2, Processes()
    )
    assert model.training


def test_precision_is_put_back():
    before = torch.get_float32_matmul_precision()
    with precision("tf32", torch.device("cuda")):
        assert torch.get_float32_matmul_precision() == "high"
    with precision("tf32", torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == before
