"""llama.cpp's server with a model that sees: `llamacpp_server.py HTTP`.

The model has random weights, so nothing is downloaded: it answers any picture and text, and means
nothing. It reads 2,048 tokens a request, in two requests at a time.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import xllamacpp
from gguf import GGUFWriter, TokenType

# Of words and of pictures. A picture of 32 x 32 becomes 16 patches, and these 4 tokens.
WIDTH, HIDDEN = 64, 128
PATCH, SIDE, EYE, MERGED = 8, 32, 32, 2
# What the projector of pictures puts around them must be tokens.
MARKS = ["<fake_token_around_image>", "<global-img>", "\n\n", "\n"]
MARKS += [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]


class Weights:
    """Tensors of random numbers, the same at each start."""

    def __init__(self, writer: Any, seed: int) -> None:
        self._writer = writer
        self._random = np.random.default_rng(seed)

    def add(self, name: str, *shape: int) -> None:
        values = self._random.standard_normal(shape) * 0.2
        self._writer.add_tensor(name, values.astype(np.float32))

    def ones(self, name: str, width: int) -> None:
        self._writer.add_tensor(name, np.ones(width, np.float32))


def _finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def words(path: Path) -> None:
    """A llama of one layer whose tokens are bytes."""
    writer = GGUFWriter(path, "llama")
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], "\u2581", *MARKS]
    kinds = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 2, *[TokenType.BYTE] * 256]
    kinds += [TokenType.NORMAL, *[TokenType.CONTROL] * len(MARKS)]
    writer.add_name("random")
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // 2)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([token.encode() for token in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}\n{% endfor %}")
    weights = Weights(writer, 7)
    for name in ("token_embd", "output"):
        weights.add(f"{name}.weight", len(tokens), WIDTH)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        weights.ones(f"{name}.weight", WIDTH)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        weights.add(f"blk.0.{name}.weight", WIDTH, WIDTH)
    for name in ("ffn_gate", "ffn_up"):
        weights.add(f"blk.0.{name}.weight", HIDDEN, WIDTH)
    weights.add("blk.0.ffn_down.weight", WIDTH, HIDDEN)
    _finish(writer)


def pictures(path: Path) -> None:
    """A vision transformer of one layer, with the projector of Idefics 3."""
    writer = GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    writer.add_string("clip.projector_type", "idefics3")
    numbers = {
        "image_size": SIDE,
        "preproc_image_size": SIDE,
        "patch_size": PATCH,
        "embedding_length": EYE,
        "feed_forward_length": HIDDEN,
        "projection_dim": WIDTH,
        "block_count": 1,
        "attention.head_count": 2,
        "projector.scale_factor": MERGED,
    }
    for name, number in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5] * 3)
    weights = Weights(writer, 8)
    weights.add("v.patch_embd.weight", EYE, 3, PATCH, PATCH)
    weights.add("v.position_embd.weight", (SIDE // PATCH) ** 2, EYE)
    biased = {f"v.blk.0.{name}": (EYE, EYE) for name in ("attn_q", "attn_k", "attn_v", "attn_out")}
    biased |= {"v.blk.0.ffn_up": (HIDDEN, EYE), "v.blk.0.ffn_down": (EYE, HIDDEN)}
    for name, shape in biased.items():
        weights.add(f"{name}.weight", *shape)
        weights.add(f"{name}.bias", shape[0])
    for name in ("v.blk.0.ln1", "v.blk.0.ln2", "v.post_ln"):
        weights.ones(f"{name}.weight", EYE)
        weights.add(f"{name}.bias", EYE)
    weights.add("v.patch_embd.bias", EYE)
    weights.add("mm.model.fc.weight", WIDTH, EYE * MERGED * MERGED)
    _finish(writer)


if __name__ == "__main__":
    folder = Path(os.environ["HOME"])
    words(folder / "words.gguf")
    pictures(folder / "pictures.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(folder / "words.gguf")
    params.mmproj.path = str(folder / "pictures.gguf")
    params.n_ctx, params.n_parallel = 4096, 2
    params.n_gpu_layers, params.cpuparams.n_threads = 0, 1
    params.port = int(sys.argv[1])
    server = xllamacpp.Server(params)
    threading.Event().wait()
