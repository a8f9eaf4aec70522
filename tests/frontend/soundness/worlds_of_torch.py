"""Worlds of modules, tensors and torch's settings."""

from __future__ import annotations

from .worlds import world

world(
    "modules",
    """
import torch.nn as nn
kept = nn.Linear.forward
m=nn.Sequential(nn.Linear(1,1),nn.ReLU())
ml=nn.ModuleList([nn.ReLU()])
md=nn.ModuleDict({'a':nn.ReLU()})
pl=nn.ParameterList([nn.Parameter(torch.ones(1))])
pd=nn.ParameterDict({'a':nn.Parameter(torch.ones(1))})
for p in m.parameters(): p.data.fill_(2.0)
class Mine(nn.Module):
    def __init__(s):
        super().__init__(); s.lin=m[0]; s.register_buffer('b',torch.ones(1)); s.k=1
    def forward(s,x): return s.lin(x)*s.k+s.b
o=Mine()
""",
    """
m(x).detach()
o(x).detach()
len(m), len(ml), len(md), len(pl), len(pd)
[n for n,_ in o.named_parameters()]
[n for n,_ in o.named_buffers()]
[n for n,_ in m.named_modules()]
o.training, m[0].training
list(o.state_dict())
sum(p.numel() for p in o.parameters())
pl[0].detach()*1
pd['a'].detach()*1
list(md)
hasattr(o,'lin'), hasattr(o,'zz')
len(o._forward_hooks)
[p.requires_grad for p in m.parameters()]
o.b*2
m[1].__class__.__name__
o.lin is m[0]
[type(c).__name__ for c in m.children()]
o.get_parameter('lin.weight').detach()*1
""",
    """
m[0]=nn.Linear(1,1,bias=False)
m.append(nn.Sigmoid())
ml.append(nn.Tanh())
md['a']=nn.Tanh()
md['q']=nn.Tanh()
pl.append(nn.Parameter(torch.zeros(1)))
pl[0]=nn.Parameter(torch.full((1,),4.))
pd['a']=nn.Parameter(torch.full((1,),5.))
o.k=3
o.b=torch.full((1,),6.)
o.b.fill_(8)
o.register_forward_hook(lambda mo,i,r: r*10)
o.lin.register_forward_pre_hook(lambda mo,i: (i[0]+3,))
m[0].weight.data.fill_(7)
m[0].weight=nn.Parameter(torch.full((1,1),9.))
o.eval()
o.requires_grad_(False)
o.forward=lambda x: x*0-1
Mine.forward=lambda s,x: x*0-2
m[1]=nn.Sigmoid()
o.lin=nn.Identity()
del o.b
nn.Linear.forward=lambda s,x: x*0+77
o.register_buffer('c',torch.ones(1))
o.register_parameter('pp',nn.Parameter(torch.ones(2)))
o.double()
h=nn.modules.module.register_module_forward_hook(lambda mo,i,r: r*0+5)
o.b=None
m[0].bias=None
o.lin.weight.requires_grad=False
m.insert(0,nn.Sigmoid())
o.__class__.k=5
nn.utils.parametrize.register_parametrization(m[0],'weight',nn.Sigmoid())
nn.utils.parametrizations.weight_norm(m[0])
""",
    undo="""
torch.nn.Linear.forward = kept
torch.nn.modules.module._global_forward_hooks.clear()
""",
)

world(
    "settings",
    """

""",
    """
torch.is_grad_enabled()
torch.get_default_dtype()
torch.tensor(1.0).dtype
torch.is_autocast_enabled('cpu')
torch.get_num_threads()
torch.are_deterministic_algorithms_enabled()
torch.is_inference_mode_enabled()
(x@torch.ones(1,1)).dtype
torch.backends.cuda.matmul.allow_tf32
torch.get_autocast_dtype('cpu')
torch.empty(1).device.type
(x.requires_grad_()*2).requires_grad
torch.is_anomaly_enabled()
torch.get_float32_matmul_precision()
torch.random.initial_seed()
torch.backends.mkldnn.is_available()
torch.backends.mkldnn.enabled
""",
    """
torch.set_grad_enabled(False)
torch.set_default_dtype(torch.float64)
torch.set_autocast_enabled('cpu',True)
torch.set_num_threads(1)
torch.set_num_threads(2)
torch.use_deterministic_algorithms(True)
torch.set_float32_matmul_precision('medium')
torch.manual_seed(5)
torch.set_anomaly_enabled(True)
torch.set_autocast_dtype('cpu',torch.float16)
torch.set_default_device('meta')
torch.backends.cuda.matmul.allow_tf32=True
""",
    undo="""
torch.set_grad_enabled(True)
torch.set_default_dtype(torch.float32)
torch.set_autocast_enabled('cpu',False)
torch.use_deterministic_algorithms(False)
torch.set_float32_matmul_precision('highest')
torch.set_anomaly_enabled(False)
torch.set_autocast_dtype('cpu',torch.bfloat16)
torch.set_default_device(None)
torch.backends.cuda.matmul.allow_tf32=False
""",
)

world(
    "tensors",
    """
a=torch.arange(4.)
b=a[1:3]
p=torch.nn.Parameter(torch.ones(2))
a.tag=5
c=torch.ones(2,3,4,5).to(memory_format=torch.channels_last)
""",
    """
a*2
b*2
a.tag if hasattr(a,'tag') else 0
p.grad
p.requires_grad
a.shape, a.stride(), a.storage_offset()
a.is_contiguous(), b.is_contiguous()
c.is_contiguous(memory_format=torch.channels_last)
a.dtype, a.device.type
b._base is a
a.data_ptr()==b.data_ptr()
p.is_leaf
len(a), a.ndim, a.numel()
(p*2).sum().backward() or p.grad*1
a.untyped_storage().nbytes()
a.is_shared()
a.T.shape
id(a)==id(b)
a is b
(a+0).tag if hasattr(a+0,'tag') else 1
a.item() if a.numel()==1 else 0
type(a).__name__, isinstance(a,torch.nn.Parameter)
torch.is_tensor(a), a.requires_grad, a.grad_fn is None
c.mT.stride()
b.is_set_to(a)
""",
    """
a=torch.arange(4).float()*3
a=a.double()
a.tag=6
del a.tag
b=a
a.resize_(2)
a.t_()
p.grad=torch.full((2,),3.)
p.requires_grad=False
p=torch.ones(2)
a=torch.arange(8.)[::2]
a=a.clone()
c=c.contiguous()
a.fill_(1)
b.zero_()
a.set_(torch.zeros(4))
a.data=torch.full((4,),9.)
p.data=torch.zeros(2)
a=torch.nn.Parameter(torch.arange(4.))
a.requires_grad_()
a=torch.zeros(1)
a=torch.arange(4.)[1:]
a=None
a=torch.arange(4.).to(torch.bfloat16)
a=torch.zeros(4,1).expand(4,3)[:,0]
""",
)
