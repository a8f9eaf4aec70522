"""Tiny random models of other libraries: a function for each, which builds a model and what it is called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass
class Program:
    """A model, or a function, and the arguments of one call."""

    model: Any
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    trains: bool = True  # whether its gradients are compared as well
    tolerance: float = 1e-4


@dataclass(frozen=True)
class Entry:
    """``needs`` are the distributions that it imports, the first of which is the one that it is about."""

    needs: tuple[str, ...]
    build: Callable[[], Program]
    more: str = ""  # why it may take more graphs than torch.compile


PROGRAMS: dict[str, Entry] = {}


def program(*needs: str, more: str = "") -> Callable[[Callable[[], Program]], Callable[[], Program]]:
    def register(build: Callable[[], Program]) -> Callable[[], Program]:
        PROGRAMS[build.__name__] = Entry(needs, build, more)
        return build

    return register


@program("transformers")
def transformers_bert() -> Program:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=50, max_position_embeddings=32, **sizes)).eval()
    return Program(model, (torch.randint(0, 50, (2, 9)),), {"attention_mask": torch.ones(2, 9, dtype=torch.long)})


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@program("transformers")
def transformers_llama() -> Program:
    return Program(llama(), (torch.randint(3, 50, (2, 9)),))


@program("transformers")
def transformers_dinov3() -> Program:
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    config = DINOv3ViTConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8
    )
    return Program(DINOv3ViTModel(config).train(), (torch.randn(2, 3, 32, 32),), trains=False)


@program("diffusers")
def diffusers_unet() -> Program:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=8, block_out_channels=(16, 32), layers_per_block=1, cross_attention_dim=16, attention_head_dim=8,
        norm_num_groups=8, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    return Program(model.eval(), (torch.randn(2, 4, 8, 8), torch.tensor(3), torch.randn(2, 5, 16)))


@program("diffusers")
def diffusers_dit() -> Program:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        sample_size=8, num_layers=2, patch_size=2, attention_head_dim=8, num_attention_heads=2, in_channels=4,
        out_channels=4, norm_num_groups=8, num_embeds_ada_norm=8,
    )  # fmt: skip
    given = {"timestep": torch.tensor([3, 4]), "class_labels": torch.tensor([1, 2])}
    return Program(model.eval(), (torch.randn(2, 4, 8, 8),), given)


@program("diffusers")
def diffusers_sd3() -> Program:
    from diffusers import SD3Transformer2DModel

    model = SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=2,
        joint_attention_dim=16, caption_projection_dim=16, pooled_projection_dim=24, out_channels=4,
        pos_embed_max_size=8,
    )  # fmt: skip
    given = {
        "encoder_hidden_states": torch.randn(2, 5, 16),
        "pooled_projections": torch.randn(2, 24),
        "timestep": torch.tensor([3, 4]),
    }
    return Program(model.eval(), (torch.randn(2, 4, 8, 8),), given)


@program("diffusers")
def diffusers_vae() -> Program:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(16, 32), norm_num_groups=8, layers_per_block=1, latent_channels=4,
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
    )  # fmt: skip
    return Program(model.eval(), (torch.randn(1, 3, 16, 16),))


@program("diffusers")
def diffusers_flux() -> Program:
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, pooled_projection_dim=16, axes_dims_rope=(4, 4, 8), guidance_embeds=True,
    )  # fmt: skip
    given = {
        "encoder_hidden_states": torch.randn(1, 5, 16), "pooled_projections": torch.randn(1, 16),
        "timestep": torch.tensor([0.5]), "guidance": torch.tensor([3.5]), "txt_ids": torch.zeros(5, 3),
        "img_ids": torch.randint(0, 4, (16, 3)).float(),
    }  # fmt: skip
    # The angles of the embedded guidance are frequencies times 3,500, and so are the frequencies' last bits.
    return Program(model.eval(), (torch.randn(1, 16, 4),), given, tolerance=5e-4)


def _denoising(scheduler: str) -> Program:
    """Three steps from noise, with the scheduler's own computation of its steps."""
    import diffusers

    class Denoises(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Conv2d(3, 3, 3, padding=1)
            self.scheduler = getattr(diffusers, scheduler)(num_train_timesteps=50)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.scheduler.set_timesteps(3)
            for t in self.scheduler.timesteps:
                x = self.scheduler.step(self.net(self.scheduler.scale_model_input(x, t)), t, x).prev_sample
            return x

    return Program(Denoises(), (torch.randn(1, 3, 8, 8),))


@program("diffusers")
def diffusers_ddim() -> Program:
    return _denoising("DDIMScheduler")


@program("diffusers")
def diffusers_euler() -> Program:
    return _denoising("EulerDiscreteScheduler")


@program("diffusers", "scipy")
def diffusers_dpm_solver() -> Program:
    return _denoising("DPMSolverMultistepScheduler")


@program("peft", "transformers")
def peft_lora() -> Program:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(llama(), LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    return Program(model.eval(), (torch.randint(3, 50, (2, 9)),))


@program("einops")
def einops_attention() -> Program:
    from einops import rearrange

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = rearrange(self.qkv(x), "b n (t h d) -> t b h n d", t=3, h=4)
            return rearrange(torch.softmax(q @ k.transpose(-1, -2), -1) @ v, "b h n d -> b n (h d)")

    return Program(Attention(), (torch.randn(2, 5, 16),))


@program("x-transformers", "einops", "einx", "loguru", "torch-einops-utils")
def x_transformers_encoder() -> Program:
    from x_transformers import Encoder, TransformerWrapper

    model = TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=Encoder(dim=32, depth=2, heads=2))
    return Program(model.eval(), (torch.randint(0, 50, (2, 9)),))


@program("torch_geometric")
def geometric_gat() -> Program:
    from torch_geometric.nn import GATConv, GCNConv

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = GCNConv(8, 16), GATConv(16, 4)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x, edges).relu(), edges)

    return Program(Net(), (torch.randn(6, 8), torch.randint(0, 6, (2, 12))))


@program("torchao")
def torchao_weight_only() -> Program:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).eval()
    quantize_(model, Int8WeightOnlyConfig())
    return Program(model, (torch.randn(4, 32),), trains=False)


@program("torchao")
def torchao_dynamic_activations() -> Program:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)).eval()
    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return Program(model, (torch.randn(4, 32),), trains=False)


@program("torchdiffeq")
def torchdiffeq_dopri5() -> Program:
    from torchdiffeq import odeint

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.net(y)

    class Solved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.field = Field()

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            return odeint(self.field, y, torch.linspace(0, 1, 3), method="dopri5")

    return Program(Solved(), (torch.randn(4, 2),))


@program("tensordict", "pyvers", "orjson")
def tensordict_module() -> Program:
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    model = TensorDictSequential(
        TensorDictModule(nn.Linear(4, 8), in_keys=["a"], out_keys=["b"]),
        TensorDictModule(nn.Linear(8, 2), in_keys=["b"], out_keys=["c"]),
    )

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(TensorDict({"a": x}, batch_size=[3]))["c"]

    return Program(Reads(), (torch.randn(3, 4),))


@program("torchrl", "tensordict", "pyvers", "hoptorch")
def torchrl_dqn() -> Program:
    from tensordict import TensorDict
    from torchrl.modules import MLP, QValueActor
    from torchrl.objectives import DQNLoss

    actor = QValueActor(
        MLP(in_features=3, out_features=2, num_cells=[8]), in_keys=["observation"], action_space="one-hot"
    )

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.loss = DQNLoss(actor, action_space="one-hot", delay_value=True)

        def forward(self, now: torch.Tensor, action: torch.Tensor, then: torch.Tensor, reward: torch.Tensor) -> Any:
            ends = torch.zeros(4, 1, dtype=torch.bool)
            step = {"observation": then, "reward": reward, "done": ends, "terminated": ends}
            return self.loss(TensorDict({"observation": now, "action": action, "next": step}, batch_size=[4]))["loss"]

    chosen = nn.functional.one_hot(torch.tensor([0, 1, 1, 0]), 2)
    return Program(Loss(), (torch.randn(4, 3), chosen, torch.randn(4, 3), torch.randn(4, 1)))


@program(
    "gpytorch", "linear_operator", "scipy", "scikit-learn", "joblib",
    more="they hold 56 operators, and those of `torch.compile` 45, as four of them have none",
)  # fmt: skip
def gpytorch_marginal_likelihood() -> Program:
    import gpytorch

    class Regression(gpytorch.models.ExactGP):
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.RBFKernel()

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.linspace(0, 1, 8)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Regression(x, x.sin(), likelihood).train()
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.loss = model, loss

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.loss(self.model(x), y)

    return Program(Loss(), (x, x.sin()))


@program("botorch", "gpytorch", "linear_operator", "pyre-extensions", "multipledispatch", "scipy")
def botorch_expected_improvement() -> Program:
    from botorch.acquisition import LogExpectedImprovement
    from botorch.models import SingleTaskGP

    x = torch.rand(6, 2, dtype=torch.float64)
    y = x.sin().sum(1, keepdim=True)
    asked = torch.rand(3, 1, 2, dtype=torch.float64, requires_grad=True)
    return Program(LogExpectedImprovement(SingleTaskGP(x, y), best_f=y.max()), (asked,))


@program("kornia", "kornia_rs")
def kornia_ssim() -> Program:
    import kornia

    return Program(
        lambda x, y: kornia.losses.ssim_loss(kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)), y, 5),
        (torch.rand(1, 3, 16, 16, requires_grad=True), torch.rand(1, 3, 16, 16)),
    )


@program("monai")
def monai_unet() -> Program:
    from monai.networks.nets import UNet

    model = UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
    return Program(model.eval(), (torch.randn(1, 1, 16, 16),))


@program("monai", "einops")
def monai_swin_unetr() -> Program:
    from monai.networks.nets import SwinUNETR

    model = SwinUNETR(
        in_channels=1, out_channels=2, feature_size=12, spatial_dims=2, depths=(1, 1, 1, 1), num_heads=(1, 1, 2, 2)
    )
    return Program(model.eval(), (torch.randn(1, 1, 64, 64),), trains=False)


@program("e3nn", "opt_einsum", "opt_einsum_fx", "scipy")
def e3nn_tensor_product() -> Program:
    from e3nn import o3

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = o3.FullyConnectedTensorProduct("2x0e+1x1o", "1x0e+1x1o", "2x0e+1x1o")

        def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
            return self.product(x, o3.spherical_harmonics("0e+1o", position, normalize=True))

    return Program(Net(), (torch.randn(3, 5), torch.randn(3, 3)))


@program("sentence-transformers", "transformers", "scipy", "scikit-learn", "joblib", "narwhals")
def sentence_transformers_pooling() -> Program:
    from sentence_transformers.models import Normalize, Pooling

    bert = transformers_bert().model

    class Embeds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert, self.pooling, self.normalize = bert, Pooling(32, "mean"), Normalize()

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            tokens = self.bert(ids, attention_mask=mask).last_hidden_state
            found = self.normalize(self.pooling({"token_embeddings": tokens, "attention_mask": mask}))
            return found["sentence_embedding"]

    return Program(Embeds().eval(), (torch.randint(0, 50, (2, 9)), torch.ones(2, 9, dtype=torch.long)))


@program("torchmetrics", "lightning-utilities")
def torchmetrics_accuracy() -> Program:
    from torchmetrics.functional import mean_squared_error, structural_similarity_index_measure

    def both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return mean_squared_error(x, y) + structural_similarity_index_measure(x, y, data_range=1.0)

    return Program(both, (torch.rand(1, 1, 16, 16), torch.rand(1, 1, 16, 16)), trains=False)
