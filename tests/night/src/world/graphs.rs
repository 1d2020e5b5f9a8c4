//! Captures, and the graphs that they become.

use super::{Block, State, World, chosen, memory};
use crate::contents::{Pattern, Span};
use crate::features::Feature;
use alloc_core::AllocError;
use alloc_core::backend::CaptureMode;
use alloc_core::graph::{CapturedGraph, GraphCapture};
use alloc_core::types::{DevicePtr, Stream};
use std::collections::{BTreeMap, BTreeSet};

/// The most graphs that there are at a time.
const MOST: usize = 5;

/// A block of a capture.
#[derive(Clone, Copy, Debug)]
struct Inside {
    ptr: DevicePtr,
    bytes: u64,
    tag: u64,
}

impl Inside {
    fn pattern(self) -> Pattern {
        Pattern { tag: self.tag, version: 0 }
    }
}

#[derive(Debug)]
struct Capturing {
    site: usize,
    lane: usize,
    stream: Stream,
    /// The program's pool that serves it, and with which tag that sleeps.
    pool: Option<u64>,
    tag: Option<u8>,
    capture: GraphCapture,
    blocks: Vec<Inside>,
    freed: Freed,
}

/// What a capture freed within it. Every launch writes there again, whoever has it since: PyTorch's graphs do the same.
#[derive(Debug, Default)]
struct Freed {
    ranges: Vec<(u64, u64)>,
    /// The streams that last worked on blocks which were there and are gone since the last launch: it comes after them.
    before: BTreeSet<usize>,
}

impl Freed {
    fn overlaps(&self, ptr: DevicePtr, bytes: u64) -> bool {
        self.ranges.iter().any(|(from, end)| *from < ptr.0 + bytes && ptr.0 < *end)
    }
}

#[derive(Debug)]
struct Graph {
    number: u64,
    site: usize,
    lane: usize,
    /// The stream that ran it last.
    last: usize,
    /// It ran, and its memory was not put to sleep since.
    ran: bool,
    pool: Option<u64>,
    tag: Option<u8>,
    graph: CapturedGraph,
    blocks: Vec<Inside>,
    freed: Freed,
}

impl Graph {
    /// Whether a launch may write there.
    fn writes(&self, ptr: DevicePtr, bytes: u64) -> bool {
        let has = |block: &Inside| block.ptr.0 < ptr.0 + bytes && ptr.0 < block.ptr.0 + block.bytes;
        self.freed.overlaps(ptr, bytes) || self.blocks.iter().any(has)
    }
}

/// The program's captures and graphs.
#[derive(Debug, Default)]
pub struct Graphs {
    capture: Option<Capturing>,
    list: Vec<Graph>,
    /// How many pieces of memory of each process had gone back when that was looked at last.
    seen: BTreeMap<usize, usize>,
}

impl Graphs {
    /// Whether a capture or a graph names the stream.
    #[must_use]
    pub fn needs(&self, lane: usize) -> bool {
        let captures = self.capture.as_ref();
        let captures =
            captures.is_some_and(|capture| capture.lane == lane || capture.freed.before.contains(&lane));
        let of =
            |graph: &Graph| graph.lane == lane || graph.last == lane || graph.freed.before.contains(&lane);
        captures || self.list.iter().any(of)
    }

    /// Whether a launch on the stream may be under way that writes what others may have.
    fn writes_on(&self, lane: usize) -> bool {
        self.list.iter().any(|graph| graph.last == lane && !graph.freed.ranges.is_empty())
    }

    /// A stream got memory. Launches that write there and may be under way come first.
    pub fn come_before(&self, world: &World, site: usize, lane: usize, ptr: DevicePtr, bytes: u64) {
        for graph in self.list.iter().filter(|graph| graph.site == site && graph.freed.overlaps(ptr, bytes)) {
            let [from, to] = [graph.last, lane].map(|lane| world.state().lanes[lane].stream);
            let ordered = world.machine(site).order(from, to);
            world.verdict.expect(ordered.is_ok(), "machine", || format!("order: {ordered:?}"));
        }
    }

    /// A block is gone. Launches that write where it was come after the work on it.
    pub fn go_after(&mut self, block: &Block) {
        let of_capture = self.capture.iter_mut().map(|capture| (capture.site, &mut capture.freed));
        let of_graphs = self.list.iter_mut().map(|graph| (graph.site, &mut graph.freed));
        for (_, freed) in of_capture.chain(of_graphs).filter(|(site, _)| *site == block.site) {
            if freed.overlaps(block.ptr, block.size) {
                freed.before.insert(block.last);
            }
        }
    }

    /// The streams whose work is, or was, on blocks that a launch writes; `None` where that work cannot be waited for.
    fn under(&self, n: usize, state: &State) -> Option<Vec<Stream>> {
        let graph = &self.list[n];
        let of = |block: &&Block| block.site == graph.site && graph.freed.overlaps(block.ptr, block.size);
        let lanes = state.blocks.iter().filter(of).map(|block| block.last);
        let lanes = lanes.chain(graph.freed.before.iter().copied());
        lanes.map(|lane| (!state.captures(lane)).then(|| state.lanes[lane].stream)).collect()
    }

    /// A launch wrote what its capture freed: nothing is known of what others had there.
    fn overwrite(&mut self, n: usize, world: &World) {
        let (freed, site) = (std::mem::take(&mut self.list[n].freed), self.list[n].site);
        let written = |ptr, bytes| freed.overlaps(ptr, bytes);
        for block in &mut world.state().blocks {
            if block.site == site && written(block.ptr, block.size) {
                block.known = None;
            }
        }
        let process = world.sites[site].process;
        world.imports.borrow_mut().iter_mut().for_each(|import| import.overwrite(process, written));
        for other in self.list.iter_mut().filter(|other| other.site == site) {
            other.ran &= !other.blocks.iter().any(|block| written(block.ptr, block.bytes));
        }
        self.list[n].freed = freed;
    }

    /// Whether a capture or a graph has memory of the pool.
    #[must_use]
    pub fn uses(&self, pool: u64) -> bool {
        let captures = self.capture.as_ref().is_some_and(|capture| capture.pool == Some(pool));
        captures || self.list.iter().any(|graph| graph.pool == Some(pool))
    }

    /// The newest graph's allocator, the program's pool that it has memory of, and its stream.
    #[must_use]
    pub fn newest(&self) -> Option<(usize, u64, usize)> {
        let graph = self.list.last()?;
        graph.pool.map(|pool| (graph.site, pool, graph.lane))
    }

    /// What graphs wrote into memory of the pool is lost.
    pub fn forget(&mut self, pool: u64) {
        self.list.iter_mut().filter(|graph| graph.pool == Some(pool)).for_each(|graph| graph.ran = false);
    }

    /// Memory of the pool sleeps with a tag from here on.
    pub fn tag(&mut self, pool: u64, tag: u8) {
        self.list.iter_mut().filter(|graph| graph.pool == Some(pool)).for_each(|graph| graph.tag = Some(tag));
    }

    /// What a launch may write is handed out to nobody but those who ask the graph's own pool for memory.
    pub fn expect_apart(
        &self,
        world: &World,
        (site, pool): (usize, Option<u64>),
        ptr: DevicePtr,
        bytes: u64,
    ) {
        let theirs = |graph: &&Graph| graph.site == site && (pool.is_none() || graph.pool != pool);
        for graph in self.list.iter().filter(theirs).filter(|graph| graph.freed.overlaps(ptr, bytes)) {
            world.verdict.find(
                "graph",
                format!(
                    "{ptr}+{bytes} of pool {pool:?} was handed out, and graph {} of pool {:?} writes it",
                    graph.number, graph.pool
                ),
            );
        }
    }

    /// Memory that a launch may write stays, as long as there is a graph for it.
    pub fn expect_memory(&mut self, world: &World) {
        for (n, process) in world.processes.iter().enumerate() {
            let gone = process.wire.pieces_back();
            let seen = std::mem::replace(self.seen.entry(n).or_default(), gone);
            if seen == gone {
                continue;
            }
            for graph in self.list.iter().filter(|graph| world.sites[graph.site].process == n) {
                if let Some((ptr, bytes)) =
                    process.wire.back_since(seen, |ptr, bytes| graph.writes(ptr, bytes))
                {
                    world.verdict.find(
                        "graph",
                        format!("{bytes} bytes at {ptr} went back, and graph {} writes there", graph.number),
                    );
                }
            }
        }
    }

    /// The live blocks of captures and graphs of an allocator, and their bytes as asked for.
    pub fn live(&self, site: usize) -> impl Iterator<Item = (DevicePtr, u64)> + '_ {
        let of_capture =
            self.capture.iter().filter(move |capture| capture.site == site).flat_map(|one| &one.blocks);
        let of_graphs =
            self.list.iter().filter(move |graph| graph.site == site).flat_map(|graph| &graph.blocks);
        of_capture.chain(of_graphs).map(|block| (block.ptr, block.bytes))
    }
}

/// A capture begins, with a pool of its own or another one.
pub fn begin(world: &World, at: u8, stream: u8, mode: u8, pool: u8) {
    let (site, of) = world.site(at);
    let mut pools = world.pools.borrow_mut();
    let mut graphs = world.graphs.borrow_mut();
    if graphs.capture.is_some() || graphs.list.len() >= MOST || !of.allocator.is_enabled() {
        return;
    }
    let first = world.processes.len() * usize::from(world.setup.devices);
    let lane =
        world.state().lane(of.process, stream, |n, _| n >= first && !pools.needs(n) && !graphs.writes_on(n));
    let Some(lane) = lane else { return };
    let stream = world.state().lanes[lane].stream;
    let suits = |one: &&super::pools::Pool| {
        one.site == site && one.device == stream.device && !pools.is_open(one.number)
    };
    let of_program: Vec<_> = pools.list.iter().filter(suits).collect();
    let own = pool.is_multiple_of(3).then(|| chosen(pool, &of_program, |pool| pool.number)).flatten();
    let pool = own.map(|n| of_program[n]);
    let mode = [CaptureMode::Relaxed, CaptureMode::ThreadLocal, CaptureMode::Global][usize::from(mode) % 3];
    match GraphCapture::begin(&of.allocator, stream, mode, pool.map(|pool| pool.pool.id())) {
        Ok(capture) => {
            world.met.note(Feature::Captures);
            world.state().captured = Some(lane);
            let tag = pool.and_then(|pool| pool.tag);
            let pool = pool.map(|pool| pool.number);
            pools.captured.extend(tag.map(|tag| (site, tag)));
            pools.list.iter_mut().filter(|one| Some(one.number) == pool).for_each(|one| one.captured = true);
            let (blocks, freed) = (Vec::new(), Freed::default());
            graphs.capture = Some(Capturing { site, lane, stream, pool, tag, capture, blocks, freed });
        }
        Err(error) => world.refused(site, "GraphCapture::begin", &error, false),
    }
}

/// Memory for the capture, which its graph writes whenever it runs.
pub fn alloc(world: &World, bytes: u64) {
    let mut graphs = world.graphs.borrow_mut();
    let Some(capture) = &mut graphs.capture else { return };
    let (site, stream) = (capture.site, capture.stream);
    if capture.blocks.len() >= 30 || !world.sites[site].allocator.is_enabled() {
        return;
    }
    match world.sites[site].allocator.malloc(bytes, stream) {
        Ok(ptr) => {
            let n = memory::hold(world, site, capture.lane, ptr, bytes, capture.pool);
            let tag = world.state().blocks.swap_remove(n).tag;
            let block = Inside { ptr, bytes, tag };
            let span = Span { machine: world.machine(site), stream, ptr, bytes };
            span.work(&world.verdict, tag, None, Some(block.pattern()));
            capture.blocks.push(block);
        }
        Err(error) => {
            let out = error.is_out_of_memory();
            drop(graphs);
            if out {
                memory::refuse(world, site, (stream, false), bytes, &error);
            } else {
                world.refused(site, "malloc in a capture", &error, false);
            }
        }
    }
}

/// Memory of the capture goes back within it, after the graph has looked at it.
pub fn free(world: &World, nth: u8) {
    let mut graphs = world.graphs.borrow_mut();
    let Some(capture) = &mut graphs.capture else { return };
    let Some(n) = chosen(nth, &capture.blocks, |block| block.tag) else { return };
    let block = capture.blocks.swap_remove(n);
    let span = Span {
        machine: world.machine(capture.site),
        stream: capture.stream,
        ptr: block.ptr,
        bytes: block.bytes,
    };
    span.work(&world.verdict, block.tag, Some(block.pattern()), None);
    capture.freed.ranges.push((block.ptr.0, block.ptr.0 + block.bytes));
    give(world, capture.site, block);
}

fn give(world: &World, site: usize, block: Inside) {
    world.state().ranges.remove(&(world.sites[site].process, block.ptr.0));
    if let Err(error) = world.sites[site].allocator.free(block.ptr) {
        world.verdict.find("free", format!("block {} of a graph at {}: {error}", block.tag, block.ptr));
    }
}

/// The capture ends well, or is given up.
pub fn end(world: &World, well: bool) {
    let Some(capture) = world.graphs.borrow_mut().capture.take() else { return };
    let Capturing { site, lane, pool, tag, capture, blocks, freed, .. } = capture;
    world.state().captured = None;
    if !well {
        drop(capture);
        blocks.into_iter().for_each(|block| give(world, site, block));
        return;
    }
    match capture.end() {
        Ok(graph) => {
            let number = world.state().number();
            let graph = Graph { number, site, lane, last: lane, ran: false, pool, tag, graph, blocks, freed };
            world.graphs.borrow_mut().list.push(graph);
        }
        Err(error) => {
            world.refused(site, "GraphCapture::end", &error, false);
            blocks.into_iter().for_each(|block| give(world, site, block));
        }
    }
}

/// A graph runs, after whatever ran before that may use the same memory.
pub fn launch(world: &World, graph: u8, stream: u8) {
    let mut graphs = world.graphs.borrow_mut();
    let Some(n) = chosen(graph, &graphs.list, |graph| graph.number) else { return };
    let (site, before, pool) = (graphs.list[n].site, graphs.list[n].last, graphs.list[n].pool);
    let device = world.state().lanes[graphs.list[n].lane].stream.device;
    let lane = {
        let state = world.state();
        let suits = |n: usize, lane: &super::Lane| !state.captures(n) && lane.stream.device == device;
        if state.captures(before) { None } else { state.lane(world.sites[site].process, stream, suits) }
    };
    let under = graphs.under(n, &world.state());
    let Some((lane, under)) = lane.zip(under) else { return };
    let [from, to] = [before, lane].map(|lane| world.state().lanes[lane].stream);
    let order = |from, to| {
        let ordered = world.machine(site).order(from, to);
        world.verdict.expect(ordered.is_ok(), "machine", || format!("order: {ordered:?}"));
    };
    under.iter().chain([&from]).for_each(|from| order(*from, to));
    // The pool may be gone, as far as the program is concerned.
    let asleep = graphs.list[n].tag.is_some_and(|tag| world.pools.borrow().slept.contains(&(site, tag)));
    if !asleep && graphs.list[n].ran {
        for block in &graphs.list[n].blocks {
            let span = Span { machine: world.machine(site), stream: to, ptr: block.ptr, bytes: block.bytes };
            span.work(&world.verdict, block.tag, Some(block.pattern()), None);
        }
    }
    // Graphs with memory of one pool may use the same of it: they run one after another.
    for other in graphs.list.iter_mut().filter(|other| pool.is_some() && other.pool == pool) {
        other.last = lane;
    }
    let graph = &mut graphs.list[n];
    graph.last = lane;
    // SAFETY: it uses memory of its pool alone, in the order seen to above.
    match unsafe { graph.graph.launch(to) } {
        Ok(()) => {
            graph.ran = true;
            world.met.note(Feature::Replays);
            graphs.overwrite(n, world);
            graphs.list[n].freed.before.clear();
            under.iter().for_each(|stream| order(to, *stream));
        }
        Err(error) => {
            let allowed = asleep && matches!(error, AllocError::Asleep { .. });
            world.refused(site, "launch", &error, allowed);
        }
    }
}

/// A graph ends, and gives its live blocks back.
pub fn end_graph(world: &World, graph: u8) {
    let taken = {
        let mut graphs = world.graphs.borrow_mut();
        let Some(n) = chosen(graph, &graphs.list, |graph| graph.number) else { return };
        let state = world.state();
        if state.captures(graphs.list[n].last) || state.captures(graphs.list[n].lane) {
            return;
        }
        graphs.list.swap_remove(n)
    };
    let Graph { site, lane, last, graph, blocks, .. } = taken;
    let [from, to] = [last, lane].map(|lane| world.state().lanes[lane].stream);
    let ordered = world.machine(site).order(from, to);
    world.verdict.expect(ordered.is_ok(), "machine", || format!("order: {ordered:?}"));
    if blocks.len().is_multiple_of(2) {
        drop(graph);
        blocks.into_iter().for_each(|block| give(world, site, block));
    } else {
        blocks.into_iter().for_each(|block| give(world, site, block));
        drop(graph);
    }
}

/// All captures and graphs end.
pub fn end_all(world: &World) {
    end(world, false);
    while !world.graphs.borrow().list.is_empty() {
        end_graph(world, 0);
    }
}
