"""A pipeline of diffusers whose denoising network is compiled: one graph for all steps.

Run it with: python examples/libraries/diffusers_pipeline.py
It needs diffusers: python -m pip install diffusers
"""

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

import torchmux

torch.manual_seed(0)
network = UNet2DModel(
    sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
    down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"),
)  # fmt: skip
pipe = DDPMPipeline(network.eval(), DDPMScheduler(num_train_timesteps=10))
pipe.set_progress_bar_config(disable=True)


def image():
    """An image of 8 by 8 points, after three steps from the same noise."""
    generator = torch.Generator().manual_seed(0)
    return torch.tensor(pipe(num_inference_steps=3, generator=generator, output_type="np").images)


wanted = image()
pipe.unet = torchmux.compile(pipe.unet)
torch.testing.assert_close(image(), wanted, rtol=1e-3, atol=1e-3)

report = torchmux.report(pipe.unet)
assert report.graph_count and not report.breaks
print(report)
