//! The scheduler: takes each request to the engine or to its stream, in the order that its file
//! needs.
//!
//! ```text
//!   positional ──────► its file's lane ─────────────────────┐
//!   append ──────────► its file's lane, one at a time ──────┼─► engine ─► reap ─┐
//!   synchronisation ─► when all transfers before it are done┘                   ├─► finished
//!   stream ──────────► when it is ready (epoll), without waiting ───────────────┘
//! ```
//! The engine gets requests of all files in turn, and not more than half of its operations from one
//! file.

use std::collections::{HashSet, VecDeque};
use std::ffi::c_int;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::abi::{AIO_ALLDONE, AIO_CANCELED, AIO_NOTCANCELED};
use crate::driver::cancel::{Matching, matching};
use crate::driver::engine::Engine;
use crate::driver::file_table::FileTable;
use crate::driver::in_flight::InFlight;
use crate::driver::open_file::Direction;
use crate::driver::operation;
use crate::driver::poller::Poller;
use crate::driver::requests::Requests;
use crate::driver::stream::{Transfer, transfer};
use crate::queue::Cancellation;
use crate::request::{Opcode, Outcome};

pub struct Scheduler {
    pub poller: Poller,
    pub files: FileTable,
    engine: Engine,
    requests: Requests,
    /// The IDs of files that have requests for the engine.
    scheduled_files: VecDeque<u64>,
    /// Requests that are done, and not completed yet.
    pub finished: Vec<(InFlight, Outcome)>,
}

impl Scheduler {
    pub fn new(poller: Poller) -> Result<Scheduler, Errno> {
        Ok(Scheduler {
            engine: Engine::new(&poller)?,
            poller,
            files: FileTable::default(),
            requests: Requests::default(),
            scheduled_files: VecDeque::new(),
            finished: Vec::new(),
        })
    }

    /// Adds a request to a lane of its file.
    pub fn add(&mut self, request: InFlight) {
        let (id, opcode, is_append) = (request.file, request.request.opcode, request.is_append());
        let user_data = self.requests.insert(request);
        let Some((file, barrier)) = self.files.get_with_barrier(id) else {
            return;
        };
        if !opcode.is_transfer() {
            barrier.add_sync(user_data);
            return self.start_syncs(id);
        }
        let epoch = barrier.begin_transfer();
        if let Some(request) = self.requests.get_mut(user_data) {
            request.sync_epoch = epoch;
        }
        if !file.is_positional() {
            let direction = if opcode == Opcode::Read {
                Direction::Read
            } else {
                Direction::Write
            };
            let lane = file.lane(direction);
            lane.push_back(user_data);
            if lane.len() == 1 {
                self.advance_stream(id, direction);
            }
            return;
        }
        if is_append {
            file.appends.push_back(user_data);
        } else {
            file.positional.push_back(user_data);
        }
        self.schedule(id);
    }

    /// Schedules a file, if it has a request for the engine and the engine does not have too many
    /// of its operations.
    fn schedule(&mut self, id: u64) {
        if let Some(file) = self.files.get_mut(id)
            && !file.is_scheduled
            && file.has_next_for_engine()
            && file.in_engine < self.engine.max_per_file()
        {
            file.is_scheduled = true;
            self.scheduled_files.push_back(id);
        }
    }

    /// Starts the synchronisations of a file's inode that wait for no transfer.
    fn start_syncs(&mut self, id: u64) {
        loop {
            let barrier = self.files.get_with_barrier(id).map(|(_, barrier)| barrier);
            let Some(user_data) = barrier.and_then(|barrier| barrier.next_sync()) else {
                return;
            };
            // It may be on another open file of the inode.
            let Some(id) = self.requests.get(user_data).map(|request| request.file) else {
                continue;
            };
            if let Some(file) = self.files.get_mut(id) {
                file.positional.push_back(user_data);
            }
            self.schedule(id);
        }
    }

    /// Submits as many operations as the engine has room for, one of each scheduled file in turn.
    pub fn submit(&mut self) {
        while self.engine.has_room() {
            let Some(id) = self.scheduled_files.pop_front() else {
                break;
            };
            let Some(file) = self.files.get_mut(id) else {
                continue;
            };
            file.is_scheduled = false;
            if let Some(user_data) = file.next_for_engine() {
                self.push_operation(user_data, false);
            }
            self.schedule(id);
        }
        self.engine.submit();
    }

    /// Makes a request's operation, for the next `submit`.
    fn push_operation(&mut self, user_data: usize, is_stream: bool) {
        let Some(request) = self.requests.get_mut(user_data) else {
            return;
        };
        let Some(file) = self.files.get_mut(request.file) else {
            return;
        };
        let op = operation::new(request, file, is_stream);
        request.is_in_engine = true;
        file.in_engine += 1;
        self.engine.push(op, user_data);
    }

    /// The engine has completions for the next `reap`.
    pub fn set_has_completions(&mut self) {
        self.engine.set_has_completions();
    }

    /// Collects the results of the engine. Returns true if there were any.
    pub fn reap(&mut self) -> bool {
        let outcomes = self.engine.reap();
        let any = !outcomes.is_empty();
        for (user_data, outcome) in outcomes {
            self.take_outcome(user_data, outcome);
        }
        any
    }

    fn take_outcome(&mut self, user_data: usize, outcome: Outcome) {
        let Some(request) = self.requests.get_mut(user_data) else {
            return;
        };
        request.is_in_engine = false;
        let id = request.file;
        if let Some(file) = self.files.get_mut(id) {
            file.in_engine -= 1;
            let directions = [Direction::Read, Direction::Write];
            let stream = directions
                .into_iter()
                .find(|direction| file.lane(*direction).front() == Some(&user_data));
            if let Some(direction) = stream {
                if let Some(outcome) = request.add_transferred(outcome) {
                    file.lane(direction).pop_front();
                    self.finish(user_data, outcome);
                }
                return self.advance_stream(id, direction);
            }
            if request.is_append() {
                file.is_appending = false;
            }
        }
        self.finish(user_data, outcome);
        self.schedule(id);
    }

    /// Carries out the requests of a stream in one direction, in their order, until one has to
    /// wait.
    pub fn advance_stream(&mut self, id: u64, direction: Direction) {
        loop {
            let Some(file) = self.files.get_mut(id) else {
                return;
            };
            let Some(&user_data) = file.lane(direction).front() else {
                break;
            };
            let Some(request) = self.requests.get_mut(user_data) else {
                break;
            };
            if request.is_in_engine {
                break;
            }
            match transfer(file, request, direction) {
                Transfer::Done(outcome) => {
                    file.lane(direction).pop_front();
                    self.finish(user_data, outcome);
                }
                Transfer::NotReady => {
                    request.was_tried = true;
                    break;
                }
                Transfer::MayBlock => {
                    self.push_operation(user_data, true);
                    break;
                }
            }
        }
        self.watch_stream(id);
    }

    /// Advances all streams.
    pub fn advance_all_streams(&mut self) {
        for id in self.files.ids() {
            self.advance_stream(id, Direction::Read);
            self.advance_stream(id, Direction::Write);
        }
    }

    /// Makes epoll report when a stream is ready for the requests that wait for it.
    fn watch_stream(&mut self, id: u64) {
        let Some(file) = self.files.get_mut(id) else {
            return;
        };
        let is_waiting = |user_data: &usize| {
            let request = self.requests.get(*user_data);
            request.is_some_and(|request| !request.is_in_engine)
        };
        let mut events = EventFlags::empty();
        for (lane, event) in [
            (&file.reads, EventFlags::IN),
            (&file.writes, EventFlags::OUT),
        ] {
            if lane.front().is_some_and(is_waiting) {
                events |= event;
            }
        }
        if events == file.watched || self.poller.watch(id, file, events).is_ok() {
            return;
        }
        // epoll does not take the file: a worker of the engine waits for it.
        let first = [file.reads.front().copied(), file.writes.front().copied()];
        for user_data in first.into_iter().flatten() {
            let request = self.requests.get(user_data);
            if request.is_some_and(|request| !request.is_in_engine) {
                self.push_operation(user_data, true);
            }
        }
    }

    /// Moves a request to `finished`.
    fn finish(&mut self, user_data: usize, outcome: Outcome) {
        let Some(request) = self.requests.remove(user_data) else {
            return;
        };
        let id = request.file;
        if request.request.opcode.is_transfer()
            && let Some((_, barrier)) = self.files.get_with_barrier(id)
        {
            barrier.end_transfer(request.sync_epoch);
            self.start_syncs(id);
        }
        self.finished.push((request, outcome));
    }

    /// Cancels the requests that have not begun. Returns the answer of aio_cancel(3), which the
    /// caller may get when the cancelled requests are completed.
    pub fn cancel(&mut self, cancellation: &Cancellation) -> c_int {
        let Matching { waiting, any_begun } = matching(&self.requests, &self.files, cancellation);
        let files: HashSet<u64> = waiting
            .iter()
            .filter_map(|user_data| Some(self.requests.get(*user_data)?.file))
            .collect();
        for id in &files {
            if let Some((file, barrier)) = self.files.get_with_barrier(*id) {
                file.retain(|user_data| !waiting.contains(&user_data));
                barrier.retain_syncs(|user_data| !waiting.contains(&user_data));
            }
        }
        let answer = match (any_begun, waiting.is_empty()) {
            (true, _) => AIO_NOTCANCELED,
            (false, false) => AIO_CANCELED,
            (false, true) => AIO_ALLDONE,
        };
        for user_data in waiting {
            self.finish(user_data, Err(Errno::CANCELED));
        }
        for id in files {
            self.watch_stream(id);
        }
        answer
    }

    /// Closes a file that has no more requests.
    pub fn close(&mut self, id: u64) {
        if let Some(file) = self.files.remove(id) {
            self.poller.remove_file(&file);
        }
    }
}
