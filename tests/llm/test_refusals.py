"""What cannot be read as it stands is refused, by name."""

from __future__ import annotations

import json
import socket
import struct

import numpy as np
import pytest

from tests.llm import skip_without_extra
from tests.llm.conftest import LLAMA_ROPE, write_model, write_tokenizer

skip_without_extra()


def load(folder, **options):
    from advlib.trainer.llm import load_llm

    return load_llm(folder, lora_rank=options.pop("lora_rank", None), **options)


def tensors(folder):
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def save(folder, content, file="model.safetensors"):
    from safetensors.numpy import save_file

    save_file(content, folder / file)


def test_a_sharded_folder_is_read_whole_and_offline(folders, tmp_path, monkeypatch):
    def refuse(*_):
        raise AssertionError("asked the network")

    write_model(tmp_path, "qwen2", max_shard_size="20KB")
    write_tokenizer(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    whole, sharded = load(folders("qwen2")).params, load(tmp_path).params
    assert set(whole) == set(sharded)
    for name, value in whole.items():
        np.testing.assert_array_equal(value, sharded[name])


def test_a_hub_id_is_not_downloaded():
    with pytest.raises(ValueError, match=r"'Qwen/Qwen3-0\.6B' is none, and nothing is downloaded"):
        load("Qwen/Qwen3-0.6B")


class TestShards:
    @pytest.fixture
    def sharded(self, tmp_path):
        write_model(tmp_path, "qwen2", max_shard_size="20KB")
        write_tokenizer(tmp_path)
        return tmp_path

    def test_a_missing_shard(self, sharded):
        shard = sorted(sharded.glob("*.safetensors"))[1]
        shard.unlink()
        with pytest.raises(ValueError, match=rf"index.json: {shard.name} is missing"):
            load(sharded)

    def test_an_index_that_lists_other_tensors(self, sharded):
        index = sharded / "model.safetensors.index.json"
        content = json.loads(index.read_text())
        del content["weight_map"]["model.norm.weight"]
        index.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=r"differ: model\.norm\.weight"):
            load(sharded)

    @pytest.mark.parametrize("file", ["../model.safetensors", "/etc/passwd", 3])
    def test_a_file_outside_the_folder(self, file, sharded):
        index = sharded / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {"model.norm.weight": file}}))
        with pytest.raises(ValueError, match="wanted the name of a file beside it"):
            load(sharded)

    def test_no_index(self, sharded):
        (sharded / "model.safetensors.index.json").unlink()
        with pytest.raises(ValueError, match=r"wanted model\.safetensors or .*index\.json; got"):
            load(sharded)


class TestWeights:
    def test_only_a_pickle(self, changed):
        folder = changed("llama")
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        with pytest.raises(ValueError, match=r"only pytorch_model\.bin; reading a pickle runs"):
            load(folder)

    def test_nothing(self, changed):
        folder = changed("llama")
        (folder / "model.safetensors").unlink()
        with pytest.raises(ValueError, match=r"no model\.safetensors and no"):
            load(folder)

    def test_a_wrong_shape(self, changed):
        folder = changed("llama")
        content = tensors(folder)
        name = "model.layers.1.self_attn.k_proj.weight"
        save(folder, {**content, name: content[name][:8]})
        with pytest.raises(ValueError, match=rf"{name} must have shape \(16, 32\); got \(8, 32\)"):
            load(folder)

    def test_a_missing_tensor(self, changed):
        folder = changed("llama")
        content = tensors(folder)
        del content["model.layers.1.mlp.up_proj.weight"]
        save(folder, content)
        with pytest.raises(ValueError, match=r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"):
            load(folder)

    def test_a_tensor_left_over(self, changed):
        folder = changed("llama")
        save(folder, {**tensors(folder), "model.layers.0.self_attn.q_proj.bias": np.ones(32)})
        with pytest.raises(ValueError, match=r"no parameter of llama takes: .*q_proj\.bias"):
            load(folder)

    def test_integers(self, changed):
        folder = changed("llama")
        content = tensors(folder)
        save(folder, {**content, "model.norm.weight": np.ones(32, np.int8)})
        with pytest.raises(ValueError, match=r"must be floating-point, .*; got I8"):
            load(folder)

    def test_a_head_that_is_not_the_embedding(self, changed):
        folder = changed("gemma")
        content = tensors(folder)
        embedding = content["model.embed_tokens.weight"]
        save(folder, {**content, "lm_head.weight": embedding.copy()})
        load(folder)
        save(folder, {**content, "lm_head.weight": embedding + 1})
        with pytest.raises(ValueError, match="but tie_word_embeddings is true"):
            load(folder)

    def test_mixed_precision_is_read_tensor_by_tensor(self, changed, folders):
        folder = changed("llama")
        content = tensors(folder)
        half = {key: value.astype(np.float16) for key, value in content.items() if "mlp" in key}
        save(folder, {**content, **half})
        read, exact = load(folder).params, load(folders("llama")).params
        for name, value in exact.items():
            tolerance = 1e-3 if "mlp" in name else 0
            np.testing.assert_allclose(read[name], value, rtol=tolerance, atol=tolerance)

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04", struct.pack("<Q", 1 << 60) + b"{}"])
    def test_no_safetensors_inside(self, content, changed):
        folder = changed("llama")
        (folder / "model.safetensors").write_bytes(content)
        with pytest.raises(ValueError, match="not a safetensors file"):
            load(folder)

    def test_a_file_cut_short(self, changed):
        folder = changed("llama")
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(ValueError, match="not a safetensors file"):
            load(folder)


CASES = [
    ("llama", {"model_type": "mistral"}, "model_type must be one of qwen2, .*; got 'mistral'"),
    ("gemma3", {"model_type": "gemma3"}, "a text-only gemma3_text is read"),
    ("llama", {"architectures": ["LlamaForSequenceClassification"]}, "architectures must be"),
    ("llama", {"hidden_act": "relu"}, "hidden_act must be 'silu' for llama, .*; got 'relu'"),
    ("llama", {"attention_bias": True}, "attention_bias must be False"),
    ("llama", {"mlp_bias": True}, "mlp_bias must be False"),
    ("qwen2", {"use_sliding_window": True}, "use_sliding_window must be False"),
    ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types must all be"),
    ("gemma", {"hidden_act": "gelu"}, "activation must be 'gelu_pytorch_tanh'; got 'gelu'"),
    ("gemma", {"rms_norm_eps": 1e-5}, "rms_norm_eps must be 1e-06 for gemma"),
    ("gemma2", {"tie_word_embeddings": False}, "tie_word_embeddings must be True"),
    ("gemma2", {"query_pre_attn_scalar": 144}, "query_pre_attn_scalar must equal head_dim, 8"),
    ("gemma2", {"layer_types": ["full_attention"] * 2}, "every 2. layer must see everything"),
    ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping must be null"),
    ("llama", {"hidden_size": None}, "hidden_size is missing"),
    ("llama", {"num_hidden_layers": "2"}, "num_hidden_layers must be a positive integer; got '2'"),
    ("llama", {"num_key_value_heads": 3}, "must be a multiple of num_key_value_heads; got 4 and 3"),
    ("llama", {"rms_norm_eps": None}, "rms_norm_eps is missing"),
    ("llama", {"rope_parameters": None}, "rope_parameters, or rope_theta, is missing"),
    ("llama", {"rope_theta": 10_000.0}, "rope_parameters and rope_theta contradict"),
    ("llama", {"rope_parameters": {**LLAMA_ROPE, "rope_type": "yarn"}}, "got .'yarn'."),
    ("qwen2", {"rope_parameters": LLAMA_ROPE}, "rope_type must be default for qwen2"),
    ("llama", {"rope_parameters": {**LLAMA_ROPE, "extra": 1}}, "rotary settings: extra"),
    ("llama", {"rope_parameters": {**LLAMA_ROPE, "factor": 0}}, "factor must be a positive"),
    ("gemma", {"rope_parameters": {"rope_theta": 5e3}}, "rope_theta must be 10000 for gemma"),
    ("llama", {"quantization_config": {"bits": 4}}, "not known for llama: quantization_config"),
]


@pytest.mark.parametrize(("name", "fields", "message"), CASES)
def test_a_configuration_that_would_be_computed_wrongly(name, fields, message, changed):
    folder = changed(name, **fields)
    with pytest.raises(ValueError, match=message) as caught:
        load(folder)
    assert str(folder / "config.json") in str(caught.value)


def test_older_fields_say_the_same_as_newer_ones(changed, folders):
    scaling = {key: value for key, value in LLAMA_ROPE.items() if key != "rope_theta"}
    folder = changed(
        "llama-stretched", rope_parameters=None, rope_theta=500.0, rope_scaling=scaling
    )
    assert load(folder).architecture == load(folders("llama-stretched")).architecture


def test_an_unknown_field_can_be_ignored_by_name_and_is_reported(changed):
    folder = changed("llama", made_by="someone")
    with pytest.raises(ValueError, match="made_by; nothing is guessed"):
        load(folder)
    fields = load(folder, ignore_config=["made_by"]).architecture.without_effect
    assert {"made_by", "attention_dropout"} <= set(fields)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model_type": NaN}'])
def test_a_config_that_is_no_json_object(text, changed):
    folder = changed("llama")
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json: (not JSON|wanted an object)"):
        load(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lora_rank": 0}, "lora_rank must be at least 1; got 0"),
        ({"lora_alpha": 2.0}, "lora_alpha needs a lora_rank"),
        ({"lora_rank": 2, "lora_alpha": -1.0}, "lora_alpha must be at least 0"),
        ({"dtype": "float16"}, "dtype must be one of 'float32', 'bfloat16'; got 'float16'"),
    ],
)
def test_options(options, message, folders):
    with pytest.raises(ValueError, match=message):
        load(folders("llama"), **options)
