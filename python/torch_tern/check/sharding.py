"""Data parallel: the step's programs annotated so that the compiler's partitioner spreads the batch over a slice. Weights stay whole on every device."""
import pathlib
import re


def batch_arguments(program: dict, batch: int | None) -> list[int]:
    """Numbers of the parameters that hold a batch: of dimension 0 equal to `batch`, or, where that is not given, copied from the host in this very step."""
    found = []
    for number, array in enumerate(program["parameters"]):
        if array["replaced"] or not array["dims"] or program["arguments"][number] < 0:
            continue
        if array["dims"][0] == batch if batch else array["fresh"]:
            found.append(number)
    return found


def _annotate(text: str, arguments: dict[int, int], partitions: int) -> str:
    """The module for `partitions` devices; arguments: number -> rank of those split along dimension 0."""
    text = text.replace("mhlo.num_partitions = 1 : i32", f"mhlo.num_partitions = {partitions} : i32")
    start = text.index("arg_attrs = [") + len("arg_attrs = [")
    end = text.index("]", start)
    attributes = re.findall(r"\{[^{}]*\}", text[start:end])
    for number, rank in arguments.items():
        dims = ", ".join(['{"chips"}'] + ["{}"] * (rank - 1))
        inner = attributes[number].strip("{}")
        attributes[number] = "{" + ", ".join(filter(None, [inner, f"sdy.sharding = #sdy.sharding<@mesh, [{dims}]>"])) + "}"
    mesh = f'  "sdy.mesh"() <{{mesh = #sdy.mesh<["chips"={partitions}]>, sym_name = "mesh"}}> : () -> ()\n'
    text = text[:start] + ", ".join(attributes) + text[end:]
    return text.replace("({\n", "({\n" + mesh, 1)


def data_parallel(programs: dict[int, dict], files: dict[int, pathlib.Path], partitions: int, batch: int | None, folder: pathlib.Path):
    """The files of the annotated programs, and notes for the report."""
    out, split, notes = {}, 0, []
    for number, file in files.items():
        program = programs[number]
        chosen = [n for n in batch_arguments(program, batch) if program["parameters"][n]["dims"][0] % partitions == 0]
        split += len(chosen)
        arguments = {program["arguments"][n]: len(program["parameters"][n]["dims"]) for n in chosen}
        out[number] = folder / f"program-{number}-{partitions}.mlir"
        out[number].write_text(_annotate(file.read_text(), arguments, partitions))
    if split:
        notes.append(f"data parallel over {partitions} devices: {split} arguments are split along dimension 0, everything else is whole on each")
    else:
        notes.append(f"no argument holds a batch that {partitions} devices could share (name its size with --batch): every device computes the same")
    return out, notes
