//! Counters of requests, and the line of statistics that a process writes when it exits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::request::Opcode;

/// The counters for one kind of request.
#[derive(Debug)]
pub struct RequestCounters {
    /// Reads of cached data, completed within the call.
    pub hits: AtomicU64,
    /// Reads that were tried in the page cache, which did not have all of the data.
    pub misses: AtomicU64,
    /// Requests that were handed to the driver.
    pub handoffs: AtomicU64,
}

/// The counters of this process. All zeroes is a process without requests.
#[derive(Debug)]
pub struct Counters {
    read: RequestCounters,
    write: RequestCounters,
    fsync: RequestCounters,
    line_taken: AtomicBool,
}

impl Counters {
    /// The counters for one kind of request.
    pub fn of(&self, opcode: Opcode) -> &RequestCounters {
        match opcode {
            Opcode::Read => &self.read,
            Opcode::Write => &self.write,
            Opcode::Sync | Opcode::DataSync => &self.fsync,
        }
    }

    /// True the first time it is called in this process.
    pub fn take_line(&self) -> bool {
        !self.line_taken.swap(true, Relaxed)
    }

    /// The counters as one line of JSON; `None` if all are zero.
    pub fn line(&self) -> Option<String> {
        let kinds = [
            ("read", &self.read),
            ("write", &self.write),
            ("fsync", &self.fsync),
        ];
        let mut any = false;
        let mut line = format!("{{\"pid\":{}", std::process::id());
        for (name, counters) in kinds {
            let counts = [&counters.hits, &counters.misses, &counters.handoffs];
            let [hits, misses, handoffs] = counts.map(|counter| counter.load(Relaxed));
            any |= hits > 0 || misses > 0 || handoffs > 0;
            line += &format!(
                ",\"{name}\":{{\"hits\":{hits},\"misses\":{misses},\"handoffs\":{handoffs}}}"
            );
        }
        line += "}\n";
        any.then_some(line)
    }
}

/// Adds one.
pub fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
