//! Stream capture and graphs.

use super::streams::HostEntry;
use crate::driver::{Driver, Site};
use backend_api::types::Stream;
use backend_api::{CaptureNode, Result};
use std::ffi::{c_uint, c_void};
use std::ptr;

/// What a driver says about a stream's capture.
#[derive(Clone, Copy, Debug)]
pub struct CaptureState {
    /// 0: none, 1: active; anything else: broken.
    pub status: c_uint,
    /// The capture's id.
    pub id: u64,
    /// The graph under capture.
    pub graph: u64,
    /// The last nodes, where they were asked for; valid until the next call about the stream.
    pub tail: *const *mut c_void,
    /// How many they are.
    pub count: usize,
}

impl CaptureState {
    /// Of a stream that is not captured.
    pub const NONE: Self = Self { status: 0, id: 0, graph: 0, tail: ptr::null(), count: 0 };
}

/// Capture and graphs. Modes have the numbers 0 (global), 1 (of the thread) and 2 (relaxed).
///
/// # Safety
/// The answer to [`capture_state`](Self::capture_state) points to as many nodes as it says, until the next call.
pub unsafe trait GraphCalls: Driver {
    /// A stream's capture, with the last nodes where `tail` asks for them.
    fn capture_state(site: Site<'_, Self>, stream: Stream, tail: bool) -> Result<CaptureState>;
    /// Begins a capture.
    fn begin(site: Site<'_, Self>, stream: Stream, mode: c_uint) -> Result<()>;
    /// Ends a capture; 0 where there is no graph.
    fn end(site: Site<'_, Self>, stream: Stream) -> Result<u64>;
    /// Sets the thread's mode and answers the one before; none where the library lacks the function.
    fn exchange_mode(site: Site<'_, Self>, mode: c_uint) -> Result<c_uint>;
    /// Whether the library can exchange modes: without that there are no captures.
    fn has_modes(&self) -> bool;
    /// Whether the library can tell of captures.
    fn has_captures(&self) -> bool;
    /// Bytes that are held of the site's device for memory nodes.
    fn node_memory(site: Site<'_, Self>) -> Result<u64>;

    /// The executable form of a graph.
    ///
    /// # Safety
    /// The graph is live.
    unsafe fn instantiate(site: Site<'_, Self>, graph: u64) -> Result<u64>;
    /// Queues a graph.
    ///
    /// # Safety
    /// The executable form is live, no other call is about it, and what its work uses stays.
    unsafe fn launch(site: Site<'_, Self>, executable: u64, stream: Stream) -> Result<()>;
    /// Destroys an executable form; the driver waits for queued launches itself.
    ///
    /// # Safety
    /// It is live and not used again.
    unsafe fn destroy_executable(site: Site<'_, Self>, executable: u64) -> Result<()>;
    /// Destroys a graph.
    ///
    /// # Safety
    /// It is live and not used again.
    unsafe fn destroy_graph(site: Site<'_, Self>, graph: u64) -> Result<()>;

    /// The nodes before a node: how many, and as many as `list` has room for.
    ///
    /// # Safety
    /// The node is of a graph under capture; `list` is null or has room for `count` nodes.
    unsafe fn node_dependencies(
        site: Site<'_, Self>,
        node: CaptureNode,
        list: *mut *mut c_void,
        count: &mut usize,
    ) -> Result<()>;

    /// A user object with one reference; `ending` gets the data when the last one is gone.
    ///
    /// # Safety
    /// `ending` can be called with `data` once, from any thread.
    unsafe fn create_user_object(
        site: Site<'_, Self>,
        data: *mut c_void,
        ending: HostEntry,
    ) -> Result<*mut c_void>;
    /// Gives a reference back.
    ///
    /// # Safety
    /// The object is live, and the reference the caller's.
    unsafe fn release_user_object(site: Site<'_, Self>, object: *mut c_void) -> Result<()>;
    /// Makes a graph hold a reference of its own.
    ///
    /// # Safety
    /// Both are live.
    unsafe fn retain_user_object(site: Site<'_, Self>, graph: u64, object: *mut c_void) -> Result<()>;
    /// Takes it back.
    ///
    /// # Safety
    /// As for [`retain_user_object`](Self::retain_user_object), and the graph has a reference.
    unsafe fn unhold_user_object(site: Site<'_, Self>, graph: u64, object: *mut c_void) -> Result<()>;
}

/// The part of [`GraphCalls`] that drivers have in common whose functions are those of CUDA under names of their own.
#[macro_export]
macro_rules! graph_calls {
    (
        captures: $begin:ident, $end:ident, $exchange:ident, $info:ident;
        graphs: $instantiate:ident, $launch:ident, $destroy_executable:ident, $destroy:ident, $dependencies:ident;
        objects: $create_object:ident, $release_object:ident, $retain_object:ident, $unhold_object:ident;
    ) => {
        fn begin(site: Site<'_, Self>, stream: Stream, mode: c_uint) -> Result<()> {
            // SAFETY: rule 1.
            unsafe { call!(site.$begin(pointer(stream.raw), mode)) }
        }

        fn end(site: Site<'_, Self>, stream: Stream) -> Result<u64> {
            let mut graph = ptr::null_mut();
            // SAFETY: rule 1; the function writes one handle.
            unsafe { call!(site.$end(pointer(stream.raw), &raw mut graph)) }?;
            Ok(number(graph))
        }

        fn exchange_mode(site: Site<'_, Self>, mut mode: c_uint) -> Result<c_uint> {
            // SAFETY: the function reads one integer and writes the one before in its place.
            unsafe { call!(site.$exchange(&raw mut mode)) }?;
            Ok(mode)
        }

        fn has_modes(&self) -> bool {
            self.functions.$exchange.is_some()
        }

        fn has_captures(&self) -> bool {
            self.functions.$info.is_some()
        }

        unsafe fn instantiate(site: Site<'_, Self>, graph: u64) -> Result<u64> {
            let mut executable = ptr::null_mut();
            // SAFETY: the caller's graph; the function writes one handle.
            unsafe { call!(site.$instantiate(&raw mut executable, pointer(graph), 0)) }?;
            Ok(number(executable))
        }

        unsafe fn launch(site: Site<'_, Self>, executable: u64, stream: Stream) -> Result<()> {
            // SAFETY: rule 1 for the stream; the caller answers for the rest.
            unsafe { call!(site.$launch(pointer(executable), pointer(stream.raw))) }
        }

        unsafe fn destroy_executable(site: Site<'_, Self>, executable: u64) -> Result<()> {
            // SAFETY: the caller uses the handle no more.
            unsafe { call!(site.$destroy_executable(pointer(executable))) }
        }

        unsafe fn destroy_graph(site: Site<'_, Self>, graph: u64) -> Result<()> {
            // SAFETY: the caller uses the handle no more.
            unsafe { call!(site.$destroy(pointer(graph))) }
        }

        unsafe fn node_dependencies(
            site: Site<'_, Self>,
            node: CaptureNode,
            list: *mut *mut c_void,
            count: &mut usize,
        ) -> Result<()> {
            // SAFETY: the caller's node and list; the function writes how many nodes there are.
            unsafe { call!(site.$dependencies(pointer(node.0), list.cast(), count)) }
        }

        unsafe fn create_user_object(
            site: Site<'_, Self>,
            data: *mut c_void,
            ending: HostEntry,
        ) -> Result<*mut c_void> {
            const NO_DESTRUCTOR_SYNC: c_uint = 1;
            let mut object = ptr::null_mut();
            // SAFETY: the caller answers for the data and its end; the function writes one handle.
            unsafe {
                call!(site.$create_object(&raw mut object, data, Some(ending), 1, NO_DESTRUCTOR_SYNC))
            }?;
            Ok(object.cast())
        }

        unsafe fn release_user_object(site: Site<'_, Self>, object: *mut c_void) -> Result<()> {
            // SAFETY: the caller's reference.
            unsafe { call!(site.$release_object(object.cast(), 1)) }
        }

        unsafe fn retain_user_object(site: Site<'_, Self>, graph: u64, object: *mut c_void) -> Result<()> {
            // SAFETY: both are live.
            unsafe { call!(site.$retain_object(pointer(graph), object.cast(), 1, 0)) }
        }

        unsafe fn unhold_user_object(site: Site<'_, Self>, graph: u64, object: *mut c_void) -> Result<()> {
            // SAFETY: the graph has a reference.
            unsafe { call!(site.$unhold_object(pointer(graph), object.cast(), 1)) }
        }
    };
}
