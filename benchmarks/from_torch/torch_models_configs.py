"""What the architectures of ``torch_models_zoo`` are made with: options, small, and arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

# -- images --------------------------------------------------------------------------------------
# torchvision's name -> options; ``size`` is the images', ``keep`` the layers that are left of those
# of one kind in a row (two where they take turns, as shifted windows do), ``frames`` a video's.
TORCHVISION: Mapping[str, Mapping[str, Any]] = {
    "alexnet": {},
    "vgg11_bn": {},
    "resnet18": {},
    "resnext50_32x4d": {},
    "wide_resnet50_2": {},
    "DenseNet": {"growth_rate": 8, "block_config": (2, 3, 2, 2), "num_init_features": 16},
    "googlenet": {"init_weights": False},
    "inception_v3": {"init_weights": False, "size": 96},
    "shufflenet_v2_x0_5": {},
    "squeezenet1_1": {},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "mnasnet0_5": {},
    "efficientnet_b0": {},
    "efficientnet_v2_s": {},
    "regnet_y_400mf": {},
    "convnext_tiny": {},
    "vit_b_32": {"image_size": 64},
    "swin_t": {"keep": 2},
    "swin_v2_t": {"keep": 2},
    "maxvit_t": {"input_size": (224, 224), "size": 224},
    "fcn_resnet50": {"weights_backbone": None},
    "deeplabv3_mobilenet_v3_large": {"weights_backbone": None},
    "lraspp_mobilenet_v3_large": {"weights_backbone": None},
    "r3d_18": {"frames": 4},
    "mc3_18": {"frames": 4},
    "r2plus1d_18": {"frames": 4},
    "swin3d_t": {"frames": 4, "keep": 2},
}

# timm's name -> options.
TIMM: Mapping[str, Mapping[str, Any]] = {
    "mixer_s32_224": {"img_size": 64},
    "gmlp_ti16_224": {"img_size": 64},
    "resmlp_12_224": {"img_size": 64},
    "deit_tiny_patch16_224": {"img_size": 64},
    "beit_base_patch16_224": {"img_size": 64, "embed_dim": 48, "depth": 2, "num_heads": 3},
    "cait_xxs24_224": {"img_size": 64, "depth": 2},
    "coat_lite_tiny": {"img_size": 64},
    "convit_tiny": {"img_size": 64},
    "convmixer_768_32": {},
    "crossvit_tiny_240": {"size": 240},
    "cspdarknet53": {},
    "davit_tiny": {},
    "dla34": {},
    "dpn68": {},
    "edgenext_xx_small": {},
    "efficientformer_l1": {"size": 224},
    "eva02_tiny_patch14_224": {"img_size": 56, "size": 56},
    "fastvit_t8": {},
    "focalnet_tiny_srf": {},
    "gcvit_xxtiny": {"size": 224},
    "ghostnet_050": {},
    "hardcorenas_a": {},
    "hrnet_w18_small": {"keep": 9},
    "inception_next_atto": {},
    "inception_resnet_v2": {"size": 96},
    "levit_128s": {"size": 224},
    "mambaout_femto": {},
    "maxxvit_rmlp_nano_rw_256": {"img_size": 64},
    "coatnet_nano_rw_224": {"img_size": 64},
    "poolformer_s12": {},
    "mobilevit_xxs": {},
    "mobilenetv4_conv_small": {},
    "mvitv2_tiny": {"img_size": 64},
    "nest_tiny": {"img_size": 64},
    "eca_nfnet_l0": {},
    "pit_ti_224": {"size": 224},
    "pvt_v2_b0": {},
    "regnetz_b16": {},
    "repghostnet_050": {},
    "repvit_m0_9": {},
    "res2net50_26w_4s": {},
    "resnest14d": {},
    "rexnet_100": {},
    "selecsls42": {},
    "sequencer2d_s": {"img_size": 64},
    "skresnet18": {},
    "seresnet18": {},
    "tnt_s_legacy_patch16_224": {"size": 224},
    "tresnet_m": {},
    "twins_svt_small": {},
    "visformer_tiny": {"img_size": 64},
    "volo_d1_224": {"img_size": 64},
    "vovnet39a": {},
    "xception41": {},
    "xcit_nano_12_p16_224": {"img_size": 64},
    "hiera_tiny_224": {"size": 224},
}


# -- text, speech and more -----------------------------------------------------------------------
# What most configurations of transformers call their sizes; each takes those it knows.
SMALL: Mapping[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "attn_implementation": "sdpa",
    "pad_token_id": 0,
    "use_cache": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# The same for networks of two halves, and for those that begin with convolutions over a wave.
ENCODER_DECODER: Mapping[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}
T5: Mapping[str, Any] = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
PATCHES: Mapping[str, Any] = {"image_size": 32, "patch_size": 8}
SPEECH: Mapping[str, Any] = {
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 4, 2),
    "conv_kernel": (10, 8, 4),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
}
TOKENS = 12


def _tokens(batch: int, vocabulary: int = 90, length: int = TOKENS, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocabulary, (batch, length), generator=generator)


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def _mask(batch: int, length: int = TOKENS) -> torch.Tensor:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length - 3 :] = 0  # padding on the right
    return mask


# Kinds of arguments, by name, for a batch.
KINDS: Mapping[str, Callable[[int], dict[str, Any]]] = {
    "text": lambda n: {"input_ids": _tokens(n), "attention_mask": _mask(n)},
    "tokens": lambda n: {"input_ids": _tokens(n)},
    "pair": lambda n: {
        "input_ids": _tokens(n),
        "attention_mask": _mask(n),
        "decoder_input_ids": _tokens(n, length=7, seed=1),
    },
    "image": lambda n: {"pixel_values": _normal(n, 3, 32, 32)},
    "image64": lambda n: {"pixel_values": _normal(n, 3, 64, 64)},
    "clip": lambda n: {
        "input_ids": _tokens(n),
        "attention_mask": _mask(n),
        "pixel_values": _normal(n, 3, 32, 32),
    },
    "wave": lambda n: {"input_values": _normal(n, 4000)},
    "video": lambda n: {"pixel_values": _normal(n, 4, 3, 32, 32)},
    "audio": lambda n: {"input_values": _normal(n, 64, 32)},
    "sound": lambda n: {"input_values": _normal(n, 1, 1600)},
    "series": lambda n: {"past_values": _normal(n, 32, 3)},
    "layout": lambda n: {
        "input_ids": _tokens(n),
        "attention_mask": _mask(n),
        "bbox": _tokens(n, 60).unsqueeze(-1) + torch.tensor([0, 1, 2, 3]),
    },
    "whisper": lambda n: {
        "input_features": _normal(n, 80, 40),
        "decoder_input_ids": _tokens(n, length=7),
    },
}


# Class of transformers -> kind of arguments, options of its configuration.
TRANSFORMERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "BertModel": ("text", {}),
    "RobertaForSequenceClassification": ("text", {}),
    "DistilBertModel": ("text", {"dim": 32, "hidden_dim": 64, "n_heads": 4, "n_layers": 2}),
    "AlbertModel": ("text", {"embedding_size": 16}),
    "ElectraForTokenClassification": ("text", {"embedding_size": 16}),
    "DebertaV2Model": ("text", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}),
    "MPNetModel": ("text", {}),
    "MobileBertModel": ("text", {"embedding_size": 16, "intra_bottleneck_size": 16}),
    "SqueezeBertModel": ("text", {"embedding_size": 32}),
    "ConvBertModel": ("text", {"embedding_size": 32}),
    "FunnelModel": (
        "text",
        {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64, "block_sizes": [1, 1]},
    ),
    "LongformerModel": ("text", {"attention_window": [4, 4]}),
    "BigBirdModel": ("text", {"attention_type": "original_full"}),
    "RoFormerModel": ("text", {"embedding_size": 32}),
    "ModernBertModel": ("text", {"global_attn_every_n_layers": 2}),
    "XLNetModel": ("text", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    "FNetModel": ("tokens", {"type_vocab_size": 2}),
    "GPT2LMHeadModel": ("text", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "GPTNeoForCausalLM": (
        "text",
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    ),
    "GPTNeoXForCausalLM": ("text", {}),
    "GPTJForCausalLM": ("text", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}),
    "OPTForCausalLM": ("text", {"ffn_dim": 64, "word_embed_proj_dim": 32}),
    "BloomForCausalLM": ("text", {"n_layer": 2, "n_head": 4}),
    "FalconForCausalLM": ("text", {}),
    "LlamaForCausalLM": ("text", {}),
    "MistralForCausalLM": ("text", {"sliding_window": 4}),
    "MixtralForCausalLM": ("text", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Qwen2ForCausalLM": ("text", {}),
    "Qwen3ForCausalLM": ("text", {"head_dim": 8}),
    "Qwen3MoeForCausalLM": (
        "text",
        {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    ),
    "GemmaForCausalLM": ("text", {"head_dim": 8}),
    "Gemma2ForCausalLM": ("text", {"head_dim": 8, "sliding_window": 4}),
    "Gemma3ForCausalLM": ("text", {"head_dim": 8, "sliding_window": 4}),
    "PhiForCausalLM": ("text", {}),
    "Phi3ForCausalLM": ("text", {}),
    "StableLmForCausalLM": ("text", {}),
    "Olmo2ForCausalLM": ("text", {}),
    "CohereForCausalLM": ("text", {}),
    "Starcoder2ForCausalLM": ("text", {}),
    "MambaForCausalLM": ("tokens", {"state_size": 4}),
    "T5ForConditionalGeneration": ("pair", T5),
    "BartForConditionalGeneration": ("pair", ENCODER_DECODER),
    "MarianMTModel": (
        "pair",
        {
            **ENCODER_DECODER,
            "decoder_vocab_size": 96,
        },
    ),
    "WhisperForConditionalGeneration": (
        "whisper",
        {
            **ENCODER_DECODER,
            "max_source_positions": 20,
            "max_target_positions": 16,
            "decoder_start_token_id": 1,
        },
    ),
    "Wav2Vec2Model": (
        "wave",
        SPEECH,
    ),
    "HubertModel": (
        "wave",
        SPEECH,
    ),
    "ViTForImageClassification": ("image", PATCHES),
    "BeitForImageClassification": (
        "image",
        {**PATCHES, "use_relative_position_bias": True},
    ),
    "DeiTModel": ("image", PATCHES),
    "Dinov2Model": ("image", PATCHES),
    "ConvNextModel": ("image64", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
    "SwinModel": (
        "image64",
        {
            "image_size": 64,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
    ),
    "SegformerForSemanticSegmentation": (
        "image64",
        {
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 3, 4],
            "decoder_hidden_size": 16,
        },
    ),
    "CLIPModel": (
        "clip",
        {
            "text_config": {
                k: v
                for k, v in SMALL.items()
                if k not in ("num_key_value_heads", "attn_implementation")
            },
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "image_size": 32,
                "patch_size": 8,
            },
            "projection_dim": 16,
        },
    ),
    "DetrForObjectDetection": (
        "image64",
        {
            "use_timm_backbone": False,
            **ENCODER_DECODER,
            "num_queries": 5,
        },
    ),
    "LongT5Model": ("pair", {**T5, "local_radius": 3, "encoder_attention_type": "local"}),
    "UMT5Model": ("pair", T5),
    "SwitchTransformersModel": (
        "pair",
        {**T5, "num_experts": 4, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
    ),
    "LEDForConditionalGeneration": (
        "pair",
        {
            **ENCODER_DECODER,
            "attention_window": 4,
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64,
        },
    ),
    "PegasusForConditionalGeneration": ("pair", ENCODER_DECODER),
    "M2M100ForConditionalGeneration": ("pair", ENCODER_DECODER),
    "ProphetNetModel": (
        "pair",
        {
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
        },
    ),
    "YosoModel": ("text", {"use_expectation": True}),
    "CanineModel": ("text", {"num_hash_buckets": 64, "local_transformer_stride": 4}),
    "RemBertModel": ("text", {"input_embedding_size": 16, "output_embedding_size": 16}),
    "EsmModel": ("text", {"mask_token_id": 4}),
    "XLMModel": ("text", {"emb_dim": 32, "n_layers": 2, "n_heads": 4}),
    "CTRLModel": ("text", {"n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 64}),
    "LayoutLMModel": ("layout", {}),
    "IBertModel": ("text", {}),
    "RwkvModel": ("tokens", {"attention_hidden_size": 32}),
    "Mamba2ForCausalLM": (
        "tokens",
        {
            "num_heads": 8,
            "head_dim": 8,
            "expand": 2,
            "n_groups": 2,
            "state_size": 8,
            "chunk_size": 4,
        },
    ),
    "RecurrentGemmaForCausalLM": (
        "text",
        {"head_dim": 8, "lru_width": 32, "attention_window_size": 8},
    ),
    "DeepseekV3ForCausalLM": (
        "text",
        {
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 1,
            "num_key_value_heads": 4,
        },
    ),
    "GptOssForCausalLM": (
        "text",
        {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4},
    ),
    "GraniteForCausalLM": ("text", {}),
    "GlmForCausalLM": ("text", {"head_dim": 8}),
    "NemotronForCausalLM": ("text", {}),
    "MptForCausalLM": ("text", {"d_model": 32, "n_layers": 2, "n_heads": 4}),
    "CodeGenForCausalLM": ("text", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}),
    "BioGptForCausalLM": ("text", {}),
    "OlmoeForCausalLM": ("text", {"num_experts": 4, "num_experts_per_tok": 2}),
    "Lfm2ForCausalLM": ("text", {"layer_types": ["conv", "full_attention"]}),
    "FalconMambaForCausalLM": ("tokens", {"state_size": 4}),
    "SiglipVisionModel": ("image", PATCHES),
    "Swinv2Model": (
        "image64",
        {
            "image_size": 64,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        },
    ),
    "MobileViTModel": (
        "image64",
        {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32],
            "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32],
        },
    ),
    "PoolFormerModel": ("image64", {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
    "DPTForDepthEstimation": (
        "image",
        {
            **PATCHES,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 8,
        },
    ),
    "GLPNForDepthEstimation": (
        "image64",
        {
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 3, 4],
            "decoder_hidden_size": 16,
        },
    ),
    "YolosForObjectDetection": (
        "image",
        {"image_size": [32, 32], "patch_size": 8, "num_detection_tokens": 5},
    ),
    "ConditionalDetrForObjectDetection": ("image64", {**ENCODER_DECODER, "num_queries": 5}),
    "DeformableDetrForObjectDetection": (
        "image64",
        {**ENCODER_DECODER, "num_queries": 5, "encoder_n_points": 2, "decoder_n_points": 2},
    ),
    "OwlViTVisionModel": ("image", PATCHES),
    "FocalNetModel": (
        "image64",
        {"image_size": 64, "embed_dim": 8, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]},
    ),
    "PvtV2Model": (
        "image64",
        {
            "hidden_sizes": [8, 16, 24, 32],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 3, 4],
        },
    ),
    "HieraModel": (
        "image64",
        {"image_size": [64, 64], "embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2]},
    ),
    "BitModel": (
        "image64",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16, 32, 64],
            "depths": [1, 1, 1, 1],
            "num_groups": 4,
        },
    ),
    "RegNetModel": (
        "image64",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16, 32, 64],
            "depths": [1, 1, 1, 1],
            "groups_width": 8,
        },
    ),
    "TimesformerModel": ("video", {**PATCHES, "num_frames": 4}),
    "VideoMAEModel": ("video", {**PATCHES, "num_frames": 4, "tubelet_size": 2}),
    "VivitModel": ("video", {"image_size": 32, "num_frames": 4, "tubelet_size": [2, 8, 8]}),
    "ASTModel": ("audio", {"max_length": 64, "num_mel_bins": 32}),
    "WavLMModel": ("wave", SPEECH),
    "Data2VecAudioModel": (
        "wave",
        {**SPEECH, "num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 7},
    ),
    "SEWModel": ("wave", {**SPEECH, "squeeze_factor": 2}),
    "Wav2Vec2ConformerModel": ("wave", SPEECH),
    "EncodecModel": (
        "sound",
        {"num_filters": 4, "hidden_size": 16, "codebook_size": 16, "upsampling_ratios": [4, 2]},
    ),
    "DacModel": (
        "sound",
        {
            "encoder_hidden_size": 8,
            "downsampling_ratios": [2, 4],
            "decoder_hidden_size": 32,
            "n_codebooks": 2,
            "codebook_size": 16,
            "codebook_dim": 4,
            "upsampling_ratios": [4, 2],
        },
    ),
    "PatchTSTModel": (
        "series",
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 16,
        },
    ),
    "UperNetForSemanticSegmentation": ("image64", {}),
}
