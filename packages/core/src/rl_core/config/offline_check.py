"""Explain a configuration of a run that trains one model on a file (``rl sft``, ``rl rm``) before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from rl_core.config.capabilities import Need, above, local_runtime_errors, unmet_needs
from rl_core.config.handed_over import unread_by_plugins
from rl_core.config.inert import inert_lines
from rl_core.config.layout import RM
from rl_core.config.memory_check import check_memory
from rl_core.config.micro_batch import model_parallel_size
from rl_core.config.report import BATCH, ENGINES, INERT, POOLS, SPELLING, Finding, Report
from rl_core.config.role_needs import adapter_errors
from rl_core.config.step_report import check_placement, check_steps

if TYPE_CHECKING:
    from rl_core.config.compose import Composed
    from rl_core.config.offline import OfflineConfig
    from rl_core.plugins import Registry

_NEEDS: Final[tuple[Need, ...]] = (
    Need("backend", "lora", "model.lora_rank", lambda tree: above(tree.model.lora_rank, 0)),
    Need(
        "backend",
        "sequence_parallel",
        "engine.ulysses_sequence_parallel_size",
        lambda tree: above(tree.engine.ulysses_sequence_parallel_size, 1),
    ),
    Need("backend", "cpu", "trainer.device", lambda tree: "cpu" if tree.trainer.device == "cpu" else None),
)


def check_offline(
    config: Composed, workers: int, registry: Registry, dataset_size: int | None, classes: Mapping[str, type]
) -> Report:
    """See ``rl_core.config.check.check_config``; ``classes`` are the plugins' dataclasses by the key that names them."""
    tree: OfflineConfig = config.tree
    report = Report()
    report.notes += [Finding(SPELLING, line) for line in config.notices]
    is_pairs = config.schema.layout is RM
    _check_batches(tree, workers, "pairs" if is_pairs else "conversations", report)
    check_steps(tree, dataset_size, report)
    engines = {"backend": config.records["engine.strategy"]} if "engine.strategy" in config.records else {}
    for record in engines.values():
        listed = ", ".join(sorted(record.capabilities)) or "none listed"
        report.notes.append(Finding(ENGINES, f"{record.kind} {record.name!r}, capabilities: {listed}."))
    report.errors += [Finding(ENGINES, text) for text in unmet_needs(_NEEDS, engines, tree, registry)]
    report.errors += [Finding(ENGINES, text) for text in local_runtime_errors(tree, workers, registry)]
    check_placement(tree, report)
    for severity, text in _contradictions(tree, 2 if is_pairs else 1):
        (report.errors if severity == "error" else report.warnings).append(Finding("contradictions", text))
    report.notes.append(Finding(POOLS, f"{workers} worker{'s' * (workers > 1)}, which train and validate."))
    check_memory(tree, registry, report)
    inert = [*inert_lines(config.given, config.schema.layout), *_inert_choices(config)]
    inert += [f"{path} has no effect: {reason}." for path, reason in unread_by_plugins(config, classes)]
    report.notes += [Finding(INERT, line) for line in inert]
    return report


def _check_batches(tree: OfflineConfig, workers: int, rows: str, report: Report) -> None:
    slices = model_parallel_size(tree.engine, workers)
    if workers % slices:
        text = f"{workers} workers cannot be cut into groups of {slices} that share one sequence."
        report.errors.append(Finding(BATCH, text))
        return
    data, dp_size = tree.data, workers // slices
    if data.train_batch_size < dp_size:
        text = (
            f"data.train_batch_size ({data.train_batch_size}) is less than the {dp_size} data-parallel workers, so some "
            "would have nothing to do. Raise it, or use fewer workers."
        )
        report.errors.append(Finding(BATCH, text))
        return
    most = -(-data.train_batch_size // dp_size)
    share = f"{most} on {'the worker' if dp_size == 1 else f'each of {dp_size} data-parallel workers'}"
    if data.train_batch_size % dp_size:
        share = f"up to {share}"
    if data.use_dynamic_bsz:
        passes = f"packed into passes of at most {data.max_token_len_per_gpu:,} tokens"
    elif data.micro_batch_size_per_gpu is None:
        text = (
            "data.use_dynamic_bsz is false and no micro-batch size is given. Set data.micro_batch_size_per_gpu, or leave "
            "use_dynamic_bsz out to pack passes by tokens."
        )
        report.errors.append(Finding(BATCH, text))
        return
    else:
        passes = f"in passes of {data.micro_batch_size_per_gpu}"
    text = f"data.train_batch_size: {data.train_batch_size:,} {rows} per optimizer step, {share}, {passes}."
    report.notes.append(Finding(BATCH, text))


def _contradictions(tree: OfflineConfig, conversations: int) -> Iterator[tuple[Literal["error", "warning"], str]]:
    """``conversations`` of a row that a pass takes together."""
    if tree.model.path is None:
        yield "warning", "model.path is not set; engines that load a model will refuse to start."
    if tree.trainer.resume_mode == "resume_path" and tree.trainer.resume_from_path is None:
        yield "error", "trainer.resume_mode is resume_path, but trainer.resume_from_path is not set. Give the folder."
    yield from (("error", text) for text in adapter_errors(tree.model, "model"))
    budget = tree.data.max_token_len_per_gpu * tree.engine.ulysses_sequence_parallel_size
    longest = conversations * tree.data.max_length
    if tree.data.use_dynamic_bsz and budget < longest:
        what = "conversation" if conversations == 1 else "pair"
        times = "" if conversations == 1 else f"{conversations} x "
        yield (
            "warning",
            f"data.max_token_len_per_gpu gives a budget of {budget} tokens per pass, and a {what} may have "
            f"{longest} ({times}data.max_length): such a {what} runs alone, over the budget.",
        )


def _inert_choices(config: Composed) -> Iterator[str]:
    """Given keys that the choices make inert."""
    tree: OfflineConfig = config.tree
    data, trainer = tree.data, tree.trainer
    rules: tuple[tuple[str, Any, str], ...] = (
        ("data.micro_batch_size_per_gpu", not data.use_dynamic_bsz, "data.use_dynamic_bsz packs passes by tokens"),
        (
            "data.max_token_len_per_gpu",
            data.use_dynamic_bsz,
            "passes are cut by rows, a micro-batch size is given",
        ),
        ("data.seed", data.shuffle, "data.shuffle is false"),
        ("data.val_max_samples", data.val_files, "there are no data.val_files"),
        ("trainer.test_freq", data.val_files, "there are no data.val_files"),
        ("trainer.val_before_train", data.val_files, "there are no data.val_files"),
        ("trainer.resume_from_path", trainer.resume_mode == "resume_path", "trainer.resume_mode is not resume_path"),
        ("model.lora_alpha", tree.model.lora_rank, "model.lora_rank is 0"),
        ("model.target_modules", tree.model.lora_rank, "model.lora_rank is 0"),
        ("model.exclude_modules", tree.model.lora_rank, "model.lora_rank is 0"),
    )
    for key, is_on, because in rules:
        if key in config.given and not is_on:
            yield f"{key} has no effect: {because}."
