"""Programs that see: classification, self-supervision, detection."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

from parts import Block, Plain, frozen, made, update, upload
from workloads import BF16, DEV, boundary


def convnet_epochs(mark, iters):
    """Epochs with a smaller last batch, and an evaluation with larger images after each."""
    m = made(lambda: torchvision.models.efficientnet_b4(), torch.float32).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    n = 0
    for _ in range(iters):
        m.train()
        for b in [128] * 3 + [61]:
            boundary(mark, n)
            n += 1
            x = upload(b, 3, 224, 224).to(memory_format=torch.channels_last)
            with torch.autocast("cuda", dtype=BF16):
                loss = F.cross_entropy(m(x), torch.zeros(b, dtype=torch.long).to(DEV), label_smoothing=0.1)
            update(opt, loss)
            loss.item()
        m.eval()
        with torch.no_grad(), torch.autocast("cuda", dtype=BF16):
            for b in [200, 75]:
                boundary(mark, n)
                n += 1
                m(upload(b, 3, 288, 288)).argmax(1)
    return m, opt, x


class Vit(nn.Module):
    def __init__(self, dim, layers, heads, patch):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, patch, patch)
        self.layers = nn.ModuleList(Block(dim, heads, feed=Plain(dim, 4 * dim)) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Sequential(Plain(dim, 2048), nn.Linear(dim, 16384))

    def features(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x, causal=False)
        return self.norm(x)

    def forward(self, x):
        return self.head(self.features(x).mean(1))


def selfsupervised_crops(mark, iters):
    """A student sees two large and many small crops, a teacher the large ones; sizes change from step to step."""
    student, teacher = made(lambda: Vit(768, 12, 12, 14), torch.float32), frozen(made(lambda: Vit(768, 12, 12, 14), torch.float32))
    opt = torch.optim.AdamW(student.parameters(), lr=1e-4)
    for n in range(iters):
        boundary(mark, n)
        large, small = random.choice([196, 224, 280]), random.choice([84, 98, 112])
        b = random.choice([24, 32])
        views, local = upload(2 * b, 3, large, large), upload(random.choice([6, 8]) * b, 3, small, small)
        with torch.autocast("cuda", dtype=BF16):
            with torch.no_grad():
                target = (teacher(views).float() / 0.04).softmax(-1)
            loss = sum(-(target.mean(0) * (student(v).float() / 0.1).log_softmax(-1)).sum(-1).mean() for v in (views, local))
        update(opt, loss, list(student.parameters()))
        with torch.no_grad():
            torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 0.004)
        del views, local, target, loss
    return student, teacher, opt


class Detector(nn.Module):
    """A pyramid over a ResNet, and heads which score every place."""

    def __init__(self, classes=91, dim=256):
        super().__init__()
        body = torchvision.models.resnet50(norm_layer=torchvision.ops.FrozenBatchNorm2d)
        self.stem = nn.Sequential(body.conv1, body.bn1, body.relu, body.maxpool)
        self.stages = nn.ModuleList([body.layer1, body.layer2, body.layer3, body.layer4])
        self.side = nn.ModuleList(nn.Conv2d(c, dim, 1) for c in (512, 1024, 2048))
        self.smooth = nn.ModuleList(nn.Conv2d(dim, dim, 3, padding=1) for _ in range(3))
        tower = lambda out: nn.Sequential(*(m for _ in range(3) for m in (nn.Conv2d(dim, dim, 3, padding=1), nn.GroupNorm(32, dim), nn.ReLU())),
                                          nn.Conv2d(dim, out, 3, padding=1))
        self.score, self.box = tower(classes), tower(4)

    def forward(self, x):
        x, levels = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        merged, above = [], None
        for level, side, smooth in reversed(list(zip(levels[1:], self.side, self.smooth))):
            here = side(level)
            if above is not None:
                here = here + F.interpolate(above, size=here.shape[-2:])
            above = here
            merged.append(smooth(here))
        flat = lambda y: y.flatten(2).transpose(1, 2)
        return torch.cat([flat(self.score(f)) for f in merged], 1), torch.cat([flat(self.box(f)) for f in merged], 1)


def detection_multiscale(mark, iters):
    """Every batch has its own size of image, and every image its own number of boxes to be matched."""
    m = made(Detector, torch.float32)
    opt = torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9, foreach=False)
    for n in range(iters):
        boundary(mark, n)
        short, long = random.choice(range(480, 801, 32)), random.choice([1024, 1184, 1344])
        x = upload(4, 3, *random.choice([(short, long), (long, short)]))
        score, box = m(x)
        losses = []
        for k in range(4):
            boxes = upload(random.choice([1, 3, 7, 20, 60]), 4)
            cost = torch.cdist(box[k].detach(), boxes, p=1)
            at = torch.randint(0, box.shape[1], (9 * len(boxes),)).to(DEV)
            target = torch.zeros_like(score[k])
            target[at, 1] = 1.0
            losses.append(torchvision.ops.sigmoid_focal_loss(score[k], target, reduction="mean"))
            losses.append(F.smooth_l1_loss(box[k][at], boxes.repeat(9, 1)))
        update(opt, sum(losses), list(m.parameters()))
        del score, box, losses, cost, target, x
    return m, opt
