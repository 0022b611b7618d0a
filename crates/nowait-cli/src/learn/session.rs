//! One run of a program that is learnt: its profile is loaded at the start, and written at the end.

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nowait_ahead_channel::{Channel, Listening};
use nowait_ahead_policy::{Learned, Learner};

use super::command::Command;
use super::load::{Loaded, load};
use super::profile::Profile;
use super::store::{Store, check_name};
use crate::messages::say;
use crate::name::{plural, shown};
use crate::problem::Problem;
use crate::size::Size;

/// The profile of a program that is about to run.
#[derive(Clone)]
pub struct Session {
    store: Store,
    name: OsString,
    /// The user has given the name.
    is_named: bool,
    command: Command,
    /// The working directory.
    directory: PathBuf,
}

/// A session whose program runs.
pub struct Running {
    /// `None` if this run is not learnt.
    learner: Option<Learner>,
    is_over: Arc<AtomicBool>,
    state: Arc<Mutex<State>>,
    name: OsString,
}

#[derive(Default)]
struct State {
    /// Why a profile cannot be used.
    refused: Option<String>,
    had_profile: bool,
    loaded: Option<Loaded>,
    written: Option<Result<Profile, String>>,
    /// The events of the program that were lost.
    lost: u64,
}

/// The time that the writing of the profile may take.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Session {
    /// The profile of a command, or the one with the name that the user gave. `program` is the file
    /// of the command. `None`, with a note for the user, if there is no place for profiles.
    ///
    /// # Errors
    /// If the name is none.
    pub fn new(
        name: &str,
        program: Option<PathBuf>,
        command: &[OsString],
    ) -> Result<Option<Session>, Problem> {
        let is_named = !name.is_empty();
        if is_named {
            check_name(name).map_err(Problem::Usage)?;
        }
        let store = match Store::new() {
            Ok(store) => store,
            Err(why) => {
                say(format_args!("nowait: {why}: nothing is learnt"));
                return Ok(None);
            }
        };
        let command = Command::of(command, program);
        Ok(Some(Session {
            store,
            name: if is_named {
                name.into()
            } else {
                command.name()
            },
            is_named,
            command,
            directory: std::env::current_dir().unwrap_or_else(|_| "/".into()),
        }))
    }

    /// Begins to load and to learn, in threads. `program` is the process of the program. The calling process is not the one that the user
    /// waits for.
    pub fn begin(self, channel: Arc<Channel>, program: u32) -> Running {
        let is_over = Arc::new(AtomicBool::new(false));
        let state = Arc::new(Mutex::new(State::default()));
        let name = self.name.clone();
        let stamp = self.store.stamp(&name);
        let read = self.read(&state);
        let learns = read.as_ref().is_none_or(is_to_be_learnt);
        if !learns {
            channel.listen(Listening::Off);
        }
        if let Some(profile) = read.clone() {
            let (session, is_over, state) = (self.clone(), is_over.clone(), state.clone());
            let thread = std::thread::Builder::new().name("load".to_owned());
            // Without the thread, nothing is loaded.
            let _ = thread.spawn(move || {
                let directory = &session.directory;
                let loaded = load(&profile, directory, || is_over.load(Ordering::Relaxed));
                lock(&state).loaded = Some(loaded);
                if loaded.changed > 0 && !learns {
                    // The next runs are learnt. If this cannot be written, a later one is.
                    let _ = session
                        .store
                        .write(&session.name, &Profile { runs: 0, ..profile });
                }
            });
        }
        let its = state.clone();
        let take = move |learned: Learned| {
            // Another run of the same program may have ended meanwhile.
            let now = match self.store.stamp(&self.name) == stamp {
                true => read,
                false => self.read(&its),
            };
            let written = self.write(now.unwrap_or_default(), &learned);
            let mut state = lock(&its);
            (state.written, state.lost) = (Some(written), learned.lost);
        };
        let learner = learns.then(|| Learner::start(channel, program, Box::new(take)));
        Running {
            learner,
            is_over,
            state,
            name,
        }
    }

    fn read(&self, state: &Mutex<State>) -> Option<Profile> {
        match self.store.read(&self.name) {
            Ok(found) => {
                // Another command may have the same number.
                let found = found.filter(|it| self.is_named || it.command == self.command);
                lock(state).had_profile |= found.is_some();
                found
            }
            Err(why) => {
                lock(state).refused = Some(why);
                None
            }
        }
    }

    /// Writes the profile with this run.
    fn write(self, mut profile: Profile, learned: &Learned) -> Result<Profile, String> {
        profile.command = self.command;
        profile.learn(learned, &self.directory);
        self.store.write(&self.name, &profile).map(|()| profile)
    }
}

/// Returns true if a run is to be learnt: the first ones, and some of the later ones.
fn is_to_be_learnt(profile: &Profile) -> bool {
    const FIRST: u64 = 4;
    const PERIOD: u64 = 8;
    profile.runs < FIRST || RandomState::new().hash_one(0).is_multiple_of(PERIOD)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    /// The program has ended. Waits until the profile is written. Returns the report, or only what
    /// has failed.
    pub fn end(self, wants_report: bool) -> String {
        self.is_over.store(true, Ordering::Relaxed);
        let is_learnt = self.learner.is_some();
        if let Some(learner) = self.learner {
            learner.stop(TIMEOUT);
        }
        let state = lock(&self.state);
        let mut lines = String::new();
        if let Some(why) = &state.refused {
            lines += &format!("nowait: {why}: the profile was not used\n");
        }
        match &state.written {
            None if !is_learnt && wants_report => {
                lines += &format!("nowait: not learnt in this run: {}\n", shown(&self.name));
            }
            None if !is_learnt => {}
            None => lines += "nowait: the profile was not written in time\n",
            Some(Err(why)) => lines += &format!("nowait: the profile was not written: {why}\n"),
            Some(Ok(_)) if !wants_report => {}
            Some(Ok(profile)) => {
                let (files, bytes) = (plural(profile.files(), "file"), Size(profile.bytes()));
                let (name, runs) = (shown(&self.name), plural(profile.runs, "run"));
                lines += &format!("nowait: learnt {bytes} of {files} in {runs}: {name}\n");
                if state.lost > 0 {
                    lines += &format!("nowait: {} lost\n", plural(state.lost, "event"));
                }
            }
        }
        match state.loaded {
            _ if !wants_report => {}
            Some(Loaded {
                files,
                is_cached: true,
                ..
            }) => {
                let files = plural(files, "file");
                lines += &format!("nowait: loaded nothing more after {files}: they were cached\n");
            }
            Some(Loaded {
                files, bytes, time, ..
            }) => {
                let (bytes, files) = (Size(bytes), plural(files, "file"));
                let time = time.as_millis();
                lines += &format!("nowait: loaded {bytes} of {files} in {time} ms\n");
            }
            None if state.had_profile => {
                lines += "nowait: the program has ended before all was loaded\n"
            }
            None => lines += "nowait: nothing was loaded: there was no profile\n",
        }
        lines
    }
}
