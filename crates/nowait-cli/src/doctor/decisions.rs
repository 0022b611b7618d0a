//! The library's decisions: the backend of an engine, and the plans for a file.

use nowait::engine::{Engine, Options};
use nowait::read::{Plan, Reason};
use nowait::{File, Mode, Result};

use super::report::{Backend, Plans};
use super::test_file::TestFile;

/// The length in bytes of the planned read.
const LEN: usize = 4096;

/// An engine of each mode with otherwise default options.
pub struct Engines {
    pub eager: Result<Engine>,
    strict: Result<Engine>,
}

impl Engines {
    /// Starts the engines.
    pub fn start() -> Engines {
        let start = |mode| Options::new().mode(mode).build();
        Engines {
            eager: start(Mode::Eager),
            strict: start(Mode::Strict),
        }
    }
}

/// Asks the library for its decisions.
pub fn decide(engines: &Engines, test_file: &TestFile) -> (Backend, Plans) {
    let backend = match &engines.eager {
        Ok(engine) => Backend {
            name: Some(engine.backend().name()),
            why: engine.why().into(),
        },
        Err(e) => Backend {
            name: None,
            why: e.to_string(),
        },
    };
    let plan = |engine: &Result<Engine>| {
        let file = test_file.planned()?.try_clone().ok()?;
        let file = File::from_fd(file, engine.as_ref().ok()?).ok()?;
        // The first read finds out which flags the filesystem refuses.
        let _ = pollster::block_on(file.read_at(vec![0; 1], 0));
        Some(file.plan(LEN))
    };
    let (eager, strict) = (plan(&engines.eager), plan(&engines.strict));
    let why = match (eager, strict) {
        (Some(eager), Some(strict)) if eager == strict => reason(eager).to_owned(),
        (Some(eager), Some(strict)) => {
            format!("eager: {}; strict: {}", reason(eager), reason(strict))
        }
        _ if backend.name.is_none() => "no engine is available".to_owned(),
        _ => "there is no file to plan for".to_owned(),
    };
    let name = |plan: Option<Plan>| plan.map(|plan| format!("{plan:?}"));
    let plans = Plans {
        eager: name(eager),
        strict: name(strict),
        why,
        whys: [eager.map(reason), strict.map(reason)],
    };
    (backend, plans)
}

/// A description of a plan and its reason.
fn reason(plan: Plan) -> &'static str {
    match plan {
        Plan::CacheFirst => {
            "the calling thread tries a NOWAIT read of the page cache; the rest goes to the engine"
        }
        Plan::AskFirst => {
            "the calling thread queries residency and reads only resident pages; the rest goes to \
             the engine"
        }
        Plan::Inline => {
            "the filesystem stores its files in memory, so a read in the calling thread does not \
             wait for a device"
        }
        Plan::Queue(Reason::CannotTell) => {
            "no call tells here if a read would wait for a device, so all reads go to the engine"
        }
        Plan::Queue(Reason::LowHitRate) => {
            "few reads of this file are hits, so all reads go to the engine"
        }
        Plan::Queue(Reason::Direct) => {
            "O_DIRECT reads do not use the page cache, so all reads go to the engine"
        }
        // Plans of other reads than the one that was asked about.
        _ => "reads of this kind go to the engine",
    }
}
