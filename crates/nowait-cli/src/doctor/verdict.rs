//! What the library makes of it all: its own engine's backend, its own plan for a file.

use nowait::engine::{Engine, Options};
use nowait::read::{Plan, Reason};
use nowait::{File, Mode, Result};

use super::report::{Backend, Plans};
use super::subject::Subject;

/// The length of the read that is planned.
const LEN: usize = 4096;

/// An engine of each mode, as a program would get it.
pub struct Engines {
    pub eager: Result<Engine>,
    strict: Result<Engine>,
}

impl Engines {
    /// Starts them.
    pub fn start() -> Engines {
        let start = |mode| Options::new().mode(mode).build();
        Engines {
            eager: start(Mode::Eager),
            strict: start(Mode::Strict),
        }
    }
}

/// Asks the library for its decisions.
pub fn decide(engines: &Engines, subject: &Subject) -> (Backend, Plans) {
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
        let file = subject.planned()?.try_clone().ok()?;
        let file = File::from_fd(file, engine.as_ref().ok()?).ok()?;
        // What a filesystem refuses is learnt by the first read.
        let _ = pollster::block_on(file.read_at(vec![0; 1], 0));
        Some(file.plan(LEN))
    };
    let (eager, strict) = (plan(&engines.eager), plan(&engines.strict));
    let why = match (eager, strict) {
        (Some(eager), Some(strict)) if eager == strict => reason(eager).to_owned(),
        (Some(eager), Some(strict)) => {
            format!("eager: {}; strict: {}", reason(eager), reason(strict))
        }
        _ if backend.name.is_none() => "no engine can be had".to_owned(),
        _ => "there is no file to ask about".to_owned(),
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

/// A plan, and its reason, in words.
fn reason(plan: Plan) -> &'static str {
    match plan {
        Plan::CacheFirst => {
            "NOWAIT reads work here, so the caller tries the page cache; the rest goes to the engine"
        }
        Plan::AskFirst => {
            "residency can be asked here, and the caller reads only what is there; the rest goes \
             to the engine"
        }
        Plan::Inline => "its files live in memory: a plain read in the caller waits for no device",
        Plan::Queue(Reason::CannotTell) => {
            "nothing here tells whether a read would wait, so all reads go to the engine"
        }
        Plan::Queue(Reason::LowHitRate) => {
            "few reads of this file find anything cached, so all go to the engine"
        }
        Plan::Queue(Reason::Direct) => {
            "O_DIRECT reads have no cache to try, so all go to the engine"
        }
        Plan::Queue(Reason::Batch | Reason::Large | Reason::Special) => {
            "such reads are the engine's"
        }
    }
}
