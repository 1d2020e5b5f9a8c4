//! Failures as JSON.

use crate::error::Failure;
use granule::AllocError;
use granule::oom::OomReport;
use granule::types::PoolId;
use serde_json::{Value, json};

/// What failed, with the whole report where memory was short.
pub(crate) fn failure(failure: &Failure) -> Value {
    let mut said = json!({ "status": failure.status(), "text": failure.text() });
    if let Failure::Engine(AllocError::OutOfMemory(report)) = failure {
        said["report"] = out_of_memory(report);
    }
    said
}

pub(crate) fn pool(pool: PoolId) -> Value {
    json!([pool.0, pool.1])
}

/// The report. Sizes are bytes, addresses are numbers.
pub(crate) fn out_of_memory(report: &OomReport) -> Value {
    json!({
        "text": report.to_string(),
        "label": report.label,
        "backend": report.backend,
        "device": report.device.0,
        "stream": report.stream.raw,
        "pool": pool(report.pool),
        "requested": report.requested,
        "block_size": report.block_size,
        "tried": report.tried,
        "device_total": report.device_total,
        "device_free": report.device_free,
        "allowed": report.allowed,
        "allocated": report.allocated,
        "reserved": report.reserved,
        "pinned": report.pinned,
        "host": host(report),
        "private_free": report.private_free,
        "pending": report.pending,
        "asleep": report.asleep,
        "shortfall": report.shortfall(),
        "largest_fit": report.largest_fit,
        "largest_anywhere": report.largest_anywhere,
        "pool_limit": report.pool_limit,
        "tenant": tenant(report),
        "kept_for_others": report.kept_for_others,
        "source_refused": report.source_refused,
        "growable": report.growable,
        "reserve_too_small": report.reserve_too_small,
        "reserve_class": report.reserve_class,
        "processes": processes(report),
        "pools": pools(report),
        "blockers": blockers(report),
        "remedies": remedies(report),
    })
}

fn host(report: &OomReport) -> Option<Value> {
    let host = report.host?;
    Some(json!({ "available": host.available, "reserve": host.reserve, "usual": host.usual }))
}

fn tenant(report: &OomReport) -> Option<Value> {
    report.tenant.as_ref().map(|tenant| {
        json!({
            "name": &*tenant.name,
            "held": tenant.held,
            "guarantee": tenant.marks.guarantee,
            "soft": tenant.marks.soft,
            "hard": tenant.marks.hard,
            "refuses": tenant.refuses,
        })
    })
}

fn processes(report: &OomReport) -> Vec<Value> {
    let processes = report.processes.iter();
    processes.map(|process| json!({ "pid": process.pid, "bytes": process.bytes })).collect()
}

fn pools(report: &OomReport) -> Vec<Value> {
    let pools = report.pools.iter().map(|cache| {
        json!({
            "pool": pool(cache.pool),
            "free": cache.free,
            "largest": cache.largest,
            "releasable": cache.releasable,
        })
    });
    pools.collect()
}

fn blockers(report: &OomReport) -> Vec<Value> {
    let blockers = report.blockers.iter().map(|blocker| {
        json!({
            "address": blocker.ptr.0,
            "size": blocker.size,
            "beside": blocker.beside,
            "would_free": blocker.would_free(),
        })
    });
    blockers.collect()
}

fn remedies(report: &OomReport) -> Vec<Value> {
    let remedies = report.remedies.iter();
    remedies
        .map(|remedy| json!({ "what": remedy.what, "bytes": remedy.bytes, "enough": remedy.enough }))
        .collect()
}
