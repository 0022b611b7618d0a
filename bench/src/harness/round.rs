//! The figures of one contender in one round.

use std::collections::BTreeMap;

use serde::Serialize;

use super::class::Class;
use super::percentiles::Percentiles;
use super::usage::Usage;

/// One contender in one round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    pub ops: u64,
    pub seconds: f64,
    pub ops_per_s: f64,
    pub us_per_op: f64,
    pub mb_per_s: f64,
    pub user_s: f64,
    pub sys_s: f64,
    /// Processor time as a percentage of the time of the turn.
    pub cpu_percent: f64,
    pub cpu_us_per_op: f64,
    pub switches_voluntary: u64,
    pub switches_involuntary: u64,
    pub switches_per_op: f64,
    /// The time from submission to completion.
    pub lat_us: Option<Percentiles>,
    /// The time of calls that must not block; of a contender that blocks, the time of the call.
    pub stall_us: Option<Percentiles>,
    /// Per cent of the reads that came wholly from the page cache, if completions report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits_percent: Option<f64>,
    /// Bytes that the kernel read from the device for this process: also those read ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_bytes_per_op: Option<f64>,
    /// The counters of the engine, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineFacts>,
    /// The threads that the turn has started and that have not ended, if they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// The figures of each class, in a mix.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<&'static str, Class>,
    /// True if Ctrl-C ended the turn early.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
}

/// The counters of an engine after a turn.
#[derive(Clone, Debug, Serialize)]
pub struct EngineFacts {
    pub backend: &'static str,
    pub why: String,
    pub hits: u64,
    pub misses: u64,
    pub skipped: u64,
    pub handoffs: u64,
    pub ring: u64,
    pub ring_hits: u64,
    pub workers: u64,
}

/// The two types of engines have the same methods, and no common trait.
macro_rules! facts_of {
    ($engine:ty) => {
        impl From<&$engine> for EngineFacts {
            fn from(engine: &$engine) -> EngineFacts {
                let stats = engine.stats();
                EngineFacts {
                    backend: engine.backend().name(),
                    why: engine.why().into(),
                    hits: stats.hits,
                    misses: stats.misses,
                    skipped: stats.skipped,
                    handoffs: stats.handoffs,
                    ring: stats.ring,
                    ring_hits: stats.ring_hits,
                    workers: stats.workers,
                }
            }
        }
    };
}

facts_of!(nowait::engine::Engine);
facts_of!(nowait::engine::LocalEngine);

impl Round {
    /// The figures that follow from the number of operations, the time and the use of the
    /// processor.
    pub fn new(ops: u64, block: u64, seconds: f64, used: Usage) -> Round {
        let seconds = seconds.max(1e-9);
        let per_op = |x: f64| if ops == 0 { 0.0 } else { x / ops as f64 };
        Round {
            ops,
            seconds,
            ops_per_s: ops as f64 / seconds,
            us_per_op: per_op(1e6 * seconds),
            mb_per_s: (ops * block) as f64 / seconds / 1e6,
            user_s: used.user,
            sys_s: used.system,
            cpu_percent: 100.0 * used.cpu() / seconds,
            cpu_us_per_op: per_op(1e6 * used.cpu()),
            switches_voluntary: used.voluntary,
            switches_involuntary: used.involuntary,
            switches_per_op: per_op((used.voluntary + used.involuntary) as f64),
            lat_us: None,
            stall_us: None,
            hits_percent: None,
            device_bytes_per_op: used.device_bytes.map(|bytes| per_op(bytes as f64)),
            engine: None,
            threads: None,
            classes: BTreeMap::new(),
            cut_short: false,
        }
    }
}
