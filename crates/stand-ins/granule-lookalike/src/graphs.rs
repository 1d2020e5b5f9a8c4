//! Graphs, their nodes, and what was instantiated of them, by handle.
//!
//! A graph has its handle from the beginning of its capture. An instantiated graph is independent of the
//! graph it was made of: the machine's graph ends with the last of them.

pub mod node_memory;
pub mod user_objects;

use crate::argument::Out;
use crate::events::lag;
use crate::handles::Handles;
use crate::machine::settings;
use crate::{Answer, Code, Here};
use backend_api::types::{DeviceIndex, DevicePtr, Stream};
use backend_api::{Backend, Capture, CaptureMode, CaptureNode, CaptureStatus, Graph};
use backend_openreg::{Driver, OpenReg};
use std::collections::BTreeSet;
use std::ptr::without_provenance_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A node's address is its graph's plus its number times this.
const NODE: usize = 16;
/// Room for the nodes of one graph.
const ROOM: usize = 1 << 24;
const BASE: usize = 0x7000_0000_0000;

/// What a graph's handle stands for.
#[derive(Clone, Debug)]
enum GraphState {
    /// Its capture, which began on this stream, has not ended.
    Open(Stream),
    Done(Arc<Finished>),
}

/// A graph that can be launched.
#[derive(Debug)]
struct Finished {
    machine: Arc<OpenReg>,
    device: DeviceIndex,
    graph: Graph,
    /// What every node depends on.
    nodes: Vec<Vec<CaptureNode>>,
    /// References to user objects that were given after the end of the capture.
    objects: Mutex<Vec<(usize, u32)>>,
}

impl Drop for Finished {
    fn drop(&mut self) {
        // SAFETY: rule 1: made by `end`, and this was its last holder.
        let _ = unsafe { self.machine.destroy_graph(self.graph) };
        let objects = self.objects.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (object, count) in objects.drain(..) {
            let _ = user_objects::release(object, count);
        }
    }
}

/// What was instantiated of a graph, and what it takes of its device.
#[derive(Debug)]
struct Executable {
    finished: Arc<Finished>,
    memory: Option<DevicePtr>,
}

impl Executable {
    /// # Errors
    /// `OUT_OF_MEMORY` where there is none for it.
    fn new(finished: Arc<Finished>) -> Answer<Self> {
        let bytes = settings().map_err(|_| Code::UNKNOWN)?.graph_memory;
        let take = || unseen(&finished.machine, |machine| Ok(machine.malloc(finished.device, bytes)?));
        let memory = if bytes > 0 { Some(take()?) } else { None };
        Ok(Self { finished, memory })
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        if let Some(memory) = self.memory {
            let Finished { machine, device, .. } = &*self.finished;
            // SAFETY: rule 3: made by `new`, and no work knows its address.
            let _ = unseen(machine, |machine| Ok(unsafe { machine.free(*device, memory) }?));
        }
    }
}

/// A capture that has not ended.
#[derive(Clone, Copy, Debug)]
struct Active {
    origin: Stream,
    is_blocking: bool,
    capture: u64,
    graph: usize,
}

static GRAPHS: Handles<GraphState, BASE, ROOM> = Handles::new();
static EXECUTABLES: Handles<Arc<Executable>, 0x6d00_0000_0000> = Handles::new();
static ACTIVE: Mutex<Vec<Active>> = Mutex::new(Vec::new());
/// Nodes that were added by hand. A graph's handle never comes back, and so do not its nodes'.
static EMPTY: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
/// The last list of dependencies that each stream's query answered with. Callers keep a pointer to it.
static ANSWERED: Mutex<Vec<(Stream, Box<[usize]>)>> = Mutex::new(Vec::new());

fn active() -> MutexGuard<'static, Vec<Active>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the driver does for itself: no capture forbids it, and it breaks none.
fn unseen<T>(machine: &OpenReg, work: impl FnOnce(&OpenReg) -> Answer<T>) -> Answer<T> {
    let Ok(family) = machine.capture() else { return work(machine) };
    let before = family.exchange_mode(CaptureMode::Relaxed)?;
    let done = work(machine);
    family.exchange_mode(before)?;
    done
}

fn invalid<T>(_: Code) -> Answer<T> {
    Err(Code::INVALID_VALUE)
}

// --- capture ---------------------------------------------------------------------------------------

/// Both vendors number modes alike.
const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

fn mode(number: u32) -> Answer<CaptureMode> {
    MODES.get(number as usize).copied().ok_or(Code::INVALID_VALUE)
}

/// Swaps the calling thread's mode.
///
/// # Errors
/// `INVALID_VALUE` for what is no mode; what the machine says.
pub fn exchange_mode(machine: &OpenReg, place: &Out<u32>) -> Answer {
    let before = machine.capture()?.exchange_mode(mode(place.before()?)?)?;
    place.put(MODES.iter().position(|known| *known == before).unwrap_or_default() as u32)
}

/// Begins a capture.
///
/// # Errors
/// `INVALID_VALUE` for what is no mode; `CAPTURE_UNSUPPORTED` for a default stream; what the machine says.
pub fn begin<T>(here: Here, handle: *mut T, number: u32) -> Answer {
    let mode = mode(number)?;
    let known = here.stream(handle)?;
    let (stream, is_blocking) = (known.stream, known.is_blocking());
    if stream.raw == 0 {
        return Err(Code::CAPTURE_UNSUPPORTED);
    }
    let family = here.machine.capture()?;
    family.begin(stream, mode)?;
    if let CaptureStatus::Active(capture) = family.status(stream)? {
        let graph = GRAPHS.insert(GraphState::Open(stream));
        active().push(Active { origin: stream, is_blocking, capture, graph });
    }
    Ok(())
}

/// Ends a capture, and tells its graph.
///
/// # Errors
/// `ILLEGAL_STATE` where the stream is not captured; what the machine says. The capture is over then too,
/// unless it was the wrong stream or thread.
pub fn end<T, G>(here: Here, handle: *mut T, place: &Out<*mut G>) -> Answer {
    let stream = here.stream(handle)?.stream;
    place.wanted()?;
    let ended = finish(here.machine, stream);
    place.put(without_provenance_mut(ended.unwrap_or(0)))?;
    ended.map(drop)
}

fn finish(machine: &Arc<OpenReg>, stream: Stream) -> Answer<usize> {
    let family = machine.capture()?;
    if family.status(stream)? == CaptureStatus::None {
        return Err(Code::ILLEGAL_STATE);
    }
    let origin = active().iter().find(|active| active.origin == stream).copied();
    let nodes = (1..).map_while(|number| family.dependencies(stream, CaptureNode(number)).ok()).collect();
    let ended = family.end(stream);
    let Some(origin) = origin else {
        return ended.map(|_| 0).map_err(Code::from);
    };
    if ended.is_err() && family.status(stream)? != CaptureStatus::None {
        return Err(ended.map_or_else(Code::from, |_| Code::UNKNOWN));
    }
    active().retain(|active| active.graph != origin.graph);
    match ended {
        Ok(graph) => {
            let (machine, device) = (Arc::clone(machine), stream.device);
            let finished = Finished { machine, device, graph, nodes, objects: Mutex::default() };
            GRAPHS.replace(origin.graph, GraphState::Done(Arc::new(finished)));
            Ok(origin.graph)
        }
        Err(error) => {
            let _ = GRAPHS.remove(origin.graph);
            Err(error.into())
        }
    }
}

/// What a stream's capture looks like.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// 0 none, 1 active, 2 invalidated: both vendors' numbers.
    pub status: u32,
    /// The capture's id; 0 where it is not active.
    pub id: u64,
    /// The graph's handle; 0 where it is not active.
    pub graph: usize,
}

/// Asks about a stream's capture.
pub fn info(machine: &OpenReg, stream: Stream) -> Answer<Info> {
    // Where nothing can be captured, nothing is.
    let status = machine.capture().map_or(Ok(CaptureStatus::None), |family| family.status(stream))?;
    Ok(match status {
        CaptureStatus::None => Info { status: 0, id: 0, graph: 0 },
        CaptureStatus::Invalidated => Info { status: 2, id: 0, graph: 0 },
        CaptureStatus::Active(id) => {
            let known = active().iter().find(|active| active.capture == id).copied();
            Info { status: 1, id, graph: known.map_or(0, |known| known.graph) }
        }
    })
}

/// Tells whether a stream is recorded. A default stream can be asked only while nothing captured waits for it.
///
/// # Errors
/// `INVALID_HANDLE`, `CAPTURE_IMPLICIT`; what the machine says.
pub fn put_status<T>(here: Here, handle: *mut T, place: &Out<u32>) -> Answer {
    place.put(info(here.machine, here.work_stream(handle)?)?.status)
}

/// Where the answers of a question about a capture go; null where not wanted.
#[derive(Debug)]
pub struct Places<G, N> {
    /// As [`Info::status`].
    pub status: Out<u32>,
    /// The capture's id.
    pub id: Out<u64>,
    /// The graph.
    pub graph: Out<*mut G>,
    /// What the stream's next work depends on. The list stays until the next query of the stream.
    pub dependencies: Out<*const *mut N>,
    /// How many those are.
    pub count: Out<usize>,
}

/// Tells what a stream's capture looks like.
pub fn put_info<T, G, N>(here: Here, handle: *mut T, places: &Places<G, N>) -> Answer {
    places.status.wanted()?;
    let stream = here.work_stream(handle)?;
    let info = info(here.machine, stream)?;
    places.status.put(info.status)?;
    if info.status != 1 {
        return Ok(());
    }
    places.id.put_if_wanted(info.id);
    places.graph.put_if_wanted(without_provenance_mut(info.graph));
    if !places.dependencies.is_null() || !places.count.is_null() {
        let (list, count) = frontier(here.machine, stream, info.graph)?;
        places.dependencies.put_if_wanted(list.cast());
        places.count.put_if_wanted(count);
    }
    Ok(())
}

/// The nodes that a captured stream's next work depends on: where they lie and how many.
fn frontier(machine: &OpenReg, stream: Stream, graph: usize) -> Answer<(*const usize, usize)> {
    let nodes = machine.capture()?.frontier(stream)?;
    let list: Box<[usize]> = nodes.iter().map(|node| address(graph, *node)).collect();
    let place = (list.as_ptr(), list.len());
    let mut answered = ANSWERED.lock().unwrap_or_else(PoisonError::into_inner);
    answered.retain(|(other, _)| *other != stream);
    answered.push((stream, list));
    Ok(place)
}

/// The stream whose capture makes a graph, and the node of it that an address names.
fn open_node(node: usize) -> Answer<(Stream, CaptureNode)> {
    let offset = node.checked_sub(BASE).ok_or(Code::INVALID_VALUE)? % ROOM;
    match GRAPHS.get(node - offset).or_else(invalid)? {
        GraphState::Open(stream) => Ok((stream, CaptureNode((offset / NODE) as u64))),
        GraphState::Done(_) => Err(Code::NOT_SUPPORTED),
    }
}

fn open_nodes(nodes: &[usize]) -> Answer<Vec<CaptureNode>> {
    nodes.iter().map(|&node| open_node(node).map(|(_, node)| node)).collect()
}

/// Sets what a captured stream's next work depends on; `adds` leaves what it depends on already.
///
/// # Errors
/// `ILLEGAL_STATE` where it is not captured; `INVALID_VALUE` for what is no node; what the machine says.
pub fn set_frontier(machine: &OpenReg, stream: Stream, nodes: &[usize], adds: bool) -> Answer {
    if info(machine, stream)?.status == 0 {
        return Err(Code::ILLEGAL_STATE);
    }
    Ok(Driver(machine).set_frontier(stream, &open_nodes(nodes)?, adds)?)
}

/// Adds a node that does nothing to a graph whose capture goes on; its handle.
///
/// # Errors
/// `NOT_SUPPORTED` for a graph that is finished; `INVALID_VALUE` for what is none; what the machine says.
pub fn add_empty_node(machine: &OpenReg, graph: usize, after: &[usize]) -> Answer<usize> {
    let GraphState::Open(stream) = GRAPHS.get(graph).or_else(invalid)? else {
        return Err(Code::NOT_SUPPORTED);
    };
    let node = address(graph, Driver(machine).add_empty_node(stream, &open_nodes(after)?)?);
    EMPTY.lock().unwrap_or_else(PoisonError::into_inner).insert(node);
    Ok(node)
}

/// Whether a node was added by [`add_empty_node`].
#[must_use]
pub fn is_empty(node: usize) -> bool {
    EMPTY.lock().unwrap_or_else(PoisonError::into_inner).contains(&node)
}

/// Refuses the use of a default stream that would wait for a captured stream, and breaks that capture.
///
/// # Errors
/// `CAPTURE_IMPLICIT`.
pub fn default_stream_is_free(machine: &OpenReg, stream: Stream) -> Answer {
    if stream.raw != 0 {
        return Ok(());
    }
    let captured = active()
        .iter()
        .find(|active| active.is_blocking && active.origin.device == stream.device)
        .map(|active| active.origin);
    let Some(captured) = captured else { return Ok(()) };
    // A query is not allowed there, and breaks the capture as the driver would.
    let _ = machine.query_stream(captured);
    Err(Code::CAPTURE_IMPLICIT)
}

// --- nodes -----------------------------------------------------------------------------------------

const fn address(graph: usize, node: CaptureNode) -> usize {
    graph + node.0 as usize * NODE
}

/// Answers with a list in drivers' way: a null place asks for the length; what is too much room is set to null.
///
/// # Errors
/// `INVALID_VALUE` without a place for the length.
pub fn put_list<N>(place: &Out<*mut N>, count: &Out<usize>, list: &[usize]) -> Answer {
    if place.is_null() {
        return count.put(list.len());
    }
    let room = count.before()?;
    let nodes = list.iter().copied().chain(std::iter::repeat(0)).take(room);
    place.fill(nodes.map(without_provenance_mut))?;
    count.put(list.len().min(room))
}

/// Every node of a graph.
pub fn nodes<G>(machine: &OpenReg, graph: *mut G) -> Answer<Vec<usize>> {
    let graph = graph.addr();
    let count = match GRAPHS.get(graph).or_else(invalid)? {
        GraphState::Done(finished) => finished.nodes.len() as u64,
        GraphState::Open(stream) => {
            let family = machine.capture()?;
            (1..).take_while(|&number| family.dependencies(stream, CaptureNode(number)).is_ok()).count()
                as u64
        }
    };
    Ok((1..=count).map(|number| address(graph, CaptureNode(number))).collect())
}

/// What a node depends on.
pub fn dependencies(machine: &OpenReg, node: usize) -> Answer<Vec<usize>> {
    let offset = node.checked_sub(BASE).ok_or(Code::INVALID_VALUE)? % ROOM;
    let graph = node - offset;
    let number = (offset / NODE) as u64;
    let found = match GRAPHS.get(graph).or_else(invalid)? {
        GraphState::Open(stream) => machine.capture()?.dependencies(stream, CaptureNode(number))?,
        GraphState::Done(finished) => {
            let index = number.checked_sub(1).ok_or(Code::INVALID_VALUE)? as usize;
            finished.nodes.get(index).cloned().ok_or(Code::INVALID_VALUE)?
        }
    };
    Ok(found.into_iter().map(|node| address(graph, node)).collect())
}

// --- graphs ----------------------------------------------------------------------------------------

fn finished(graph: usize) -> Answer<Arc<Finished>> {
    match GRAPHS.get(graph).or_else(invalid)? {
        GraphState::Done(finished) => Ok(finished),
        GraphState::Open(_) => Err(Code::INVALID_VALUE),
    }
}

/// Makes something to launch of a graph.
///
/// # Errors
/// `INVALID_VALUE` for what is no finished graph; `OUT_OF_MEMORY`.
pub fn instantiate<E, G>(place: &Out<*mut E>, graph: *mut G) -> Answer {
    place.wanted()?;
    let made = Executable::new(finished(graph.addr())?)?;
    place.put(without_provenance_mut(EXECUTABLES.insert(Arc::new(made))))
}

/// Queues an instantiated graph's work.
///
/// # Errors
/// `INVALID_VALUE` for what is none; what the machine says; `OUT_OF_MEMORY`.
pub fn launch<E, T>(here: Here, executable: *mut E, handle: *mut T) -> Answer {
    let stream = here.work_stream(handle)?;
    let executable = EXECUTABLES.get(executable.addr()).or_else(invalid)?;
    node_memory::take(here.machine, executable.finished.device)?;
    // SAFETY: rule 2: the program promises its driver that what it captured is still there.
    unsafe { here.machine.capture()?.launch(executable.finished.graph, stream) }?;
    lag::launched();
    Ok(())
}

/// Prepares a launch: nothing is to be done.
///
/// # Errors
/// `INVALID_VALUE` for what is no instantiated graph; `INVALID_HANDLE`.
pub fn upload<E, T>(here: Here, executable: *mut E, handle: *mut T) -> Answer {
    here.work_stream(handle)?;
    EXECUTABLES.get(executable.addr()).map(drop).or_else(invalid)
}

/// Ends an instantiated graph; queued launches still run.
pub fn destroy_executable<E>(executable: *mut E) -> Answer {
    EXECUTABLES.remove(executable.addr()).map(drop).or_else(invalid)
}

/// Ends a graph.
///
/// # Errors
/// `INVALID_VALUE` for what is no finished graph.
pub fn destroy<G>(graph: *mut G) -> Answer {
    finished(graph.addr())?;
    GRAPHS.remove(graph.addr()).map(drop).or_else(invalid)
}

/// Gives a graph `count` references to a user object, which it gives back at its end: new ones, or with flag 1 the
/// caller's own.
///
/// # Errors
/// `INVALID_VALUE` for an unknown graph, object or flag; what the machine says.
pub fn retain_object<G, O>(
    machine: &OpenReg,
    graph: *mut G,
    object: *mut O,
    count: u32,
    flags: u32,
) -> Answer {
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let state = GRAPHS.get(graph.addr()).or_else(invalid)?;
    let object = object.addr();
    user_objects::retain(object, count)?;
    let kept = match state {
        GraphState::Open(stream) => {
            let release = Box::new(move || {
                let _ = user_objects::release(object, count);
            });
            Driver(machine).retain_until_graph_ends(stream, release).map_err(Code::from)
        }
        GraphState::Done(finished) => {
            finished.objects.lock().unwrap_or_else(PoisonError::into_inner).push((object, count));
            Ok(())
        }
    };
    if kept.is_err() || flags == 1 {
        user_objects::release(object, count)?;
    }
    kept
}
