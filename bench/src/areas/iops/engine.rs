//! nowait's engines as contenders: batches of reads or writes. Buffers are used again.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use nowait::buffer::{Buffer, BufferPool, PoolBuffer, Source};
use nowait::engine::{Engine, Feature, LocalEngine, Options, Polled, Wait};
use nowait::op::{Op, Read, Write};
use nowait::support::Support;
use nowait::{Completion, ErrorKind, Handle};

use super::load::Load;
use crate::harness::contender::Fit;
use crate::harness::files::{Files, open_direct};
use crate::harness::round::{EngineFacts, Round};
use crate::harness::turn::Lane;
use nowait_cli::problem::Problem;

/// The options of an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// Registered files and memory.
    pub fixed: bool,
    pub polled: bool,
    pub sqpoll: bool,
    /// An `Engine`, not a `LocalEngine`.
    pub shared: bool,
}

/// The idle time after which the kernel's thread sleeps: longer than the time between two batches.
const SQPOLL_IDLE: Duration = Duration::from_millis(50);

impl Kind {
    fn options(self, depth: usize, pool: &BufferPool) -> Options {
        let mut options = Options::new().depth(depth);
        if self.fixed {
            options = options.buffers(pool);
        }
        if self.polled {
            options = options.polled(Polled::Busy);
        }
        if self.sqpoll {
            options = options.sqpoll(SQPOLL_IDLE);
        }
        options
    }

    /// Returns if such an engine is available for these files.
    pub fn fits(self, files: &Files, block: u64) -> Fit {
        match self.attempt(files, block) {
            Ok(lacking) if lacking.is_empty() => Fit::Yes,
            Ok(lacking) => Fit::With(lacking.join("; ")),
            Err(problem) => Fit::No(problem),
        }
    }

    /// Reads one block. Returns the features that are missing, with the reasons.
    fn attempt(self, files: &Files, block: u64) -> Result<Vec<String>, String> {
        let say = |e: nowait::Error| match e.kind() {
            ErrorKind::NeedsPollQueues => {
                "the device has no queues to be polled (an NVMe drive has some with the kernel's \
                 parameter nvme.poll_queues=N)"
                    .into()
            }
            _ => e.to_string(),
        };
        let pool = BufferPool::new(1, block as usize).map_err(say)?;
        let file = open_direct(&files.paths[0], false).map_err(|p| format!("{p:?}"))?;
        let handle = Handle::new(file).map_err(say)?;
        let options = self.options(1, &pool);
        let mut engine = AnyEngine::build(self, &options).map_err(say)?;
        let handle = engine.take_in(self, vec![handle]).map_err(say)?.remove(0);
        let buffer = pool.take().ok_or("no buffer")?;
        let mut ops = vec![Op::from(Read::new(&handle, Box::new(buffer), 0))];
        let mut done = Vec::new();
        engine.turn(&mut ops, &mut done, 1).map_err(say)?;
        for completion in done {
            completion.result.map_err(say)?;
        }
        let wanted = [
            (Feature::RegisteredFiles, self.fixed),
            (Feature::RegisteredBuffers, self.fixed),
            (Feature::Polled, self.polled),
            (Feature::Sqpoll, self.sqpoll),
        ];
        let lacking = wanted.into_iter().filter(|(_, wanted)| *wanted);
        Ok(lacking
            .filter_map(|(feature, _)| {
                let support = engine.support(feature);
                matches!(support, Support::No(_)).then(|| format!("{feature}: {support}"))
            })
            .collect())
    }

    /// Runs one turn: keeps as many operations in flight as the depth, in batches.
    pub fn play(self, load: &Load<'_>) -> Result<Round, Problem> {
        let facts = Mutex::new(None);
        let mut round = load.turn.run(|lane| {
            load.pin()?;
            let pool = BufferPool::new(load.turn.depth, load.turn.block as usize)?;
            let mut engine = AnyEngine::build(self, &self.options(load.turn.depth, &pool))?;
            let files = load.open()?.into_iter().map(Handle::new);
            let files = engine.take_in(self, files.collect::<Result<_, _>>()?)?;
            match load.write {
                false => run(load, lane, &mut engine, &files, &pool, &READS)?,
                true => run(load, lane, &mut engine, &files, &pool, &WRITES)?,
            }
            *facts.lock().unwrap_or_else(|e| e.into_inner()) = Some(engine.facts());
            Ok(())
        })?;
        round.engine = facts.into_inner().unwrap_or_else(|e| e.into_inner());
        Ok(round)
    }
}

/// An engine of either type.
enum AnyEngine {
    Local(Box<LocalEngine>),
    Shared(Engine),
}

impl AnyEngine {
    fn build(kind: Kind, options: &Options) -> nowait::Result<AnyEngine> {
        if kind.shared {
            options.build().map(AnyEngine::Shared)
        } else {
            options
                .build_local()
                .map(|engine| AnyEngine::Local(Box::new(engine)))
        }
    }

    /// Registers files, if the kind says so.
    fn take_in(&mut self, kind: Kind, files: Vec<Handle>) -> nowait::Result<Vec<Handle>> {
        if !kind.fixed {
            return Ok(files);
        }
        let set = match self {
            AnyEngine::Local(engine) => engine.file_set(files.len())?,
            AnyEngine::Shared(engine) => engine.file_set(files.len())?,
        };
        files.iter().map(|file| set.insert(file)).collect()
    }

    /// Submits operations and takes completions.
    #[inline]
    fn turn(
        &mut self,
        ops: &mut Vec<Op>,
        done: &mut Vec<Completion>,
        at_least: usize,
    ) -> nowait::Result<usize> {
        match self {
            AnyEngine::Local(engine) => engine.submit_and_wait(ops, done, Wait::For(at_least)),
            AnyEngine::Shared(engine) => {
                engine.submit_batch(ops);
                engine.reap(done, Wait::For(at_least))
            }
        }
    }

    fn support(&self, feature: Feature) -> Support {
        match self {
            AnyEngine::Local(engine) => engine.support(feature),
            AnyEngine::Shared(engine) => engine.support(feature),
        }
    }

    fn facts(&self) -> EngineFacts {
        match self {
            AnyEngine::Local(engine) => (&**engine).into(),
            AnyEngine::Shared(engine) => engine.into(),
        }
    }
}

/// The functions that make an operation from memory, and take the memory back from it.
struct Form<B> {
    memory: fn(PoolBuffer) -> B,
    make: fn(&Handle, B, u64) -> Op,
    back: fn(Op) -> Option<B>,
}

const READS: Form<Buffer> = Form {
    memory: |buffer| Box::new(buffer),
    make: |file, buffer, offset| Read::new(file, buffer, offset).into(),
    back: Op::into_buffer,
};

const WRITES: Form<Source> = Form {
    memory: |buffer| Box::new(buffer),
    make: |file, bytes, offset| Write::new(file, bytes, offset).into(),
    back: Op::into_source,
};

/// The `user_data` of the operation that is timed; the others have 0.
const TIMED: u64 = 1;

fn run<B>(
    load: &Load<'_>,
    lane: &mut Lane<'_>,
    engine: &mut AnyEngine,
    files: &[Handle],
    pool: &BufferPool,
    form: &Form<B>,
) -> Result<(), Problem> {
    let (depth, block) = (load.turn.depth, load.turn.block);
    let memory = std::iter::from_fn(|| pool.take()).map(Load::filled);
    let mut free: Vec<B> = memory.map(form.memory).collect();
    let mut ops: Vec<Op> = Vec::with_capacity(depth);
    let mut done = Vec::with_capacity(depth);
    let mut timed: Option<Instant> = None;
    lane.begin();
    loop {
        while let Some(memory) = free.pop() {
            let Some(place) = lane.next() else {
                free.push(memory);
                break;
            };
            ops.push((form.make)(&files[place.file], memory, place.offset));
        }
        if let Some(op) = ops.pop() {
            let timer = lane.tape.timer(ops.len() as u64 + 1);
            let word = match timed {
                None if timer.is_some() => TIMED,
                _ => 0,
            };
            timed = timed.or(timer);
            ops.push(op.user_data(word));
        }
        let in_flight = depth - free.len();
        if in_flight == 0 {
            return Ok(());
        }
        engine.turn(&mut ops, &mut done, load.batch.min(in_flight))?;
        for completion in done.drain(..) {
            if completion.op.get_user_data() == TIMED
                && let Some(timer) = timed.take()
            {
                lane.tape.latency(timer.elapsed());
            }
            lane.done(completion.result?, block)?;
            free.extend((form.back)(completion.op));
        }
    }
}
