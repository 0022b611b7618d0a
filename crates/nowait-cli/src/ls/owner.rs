//! Names of users and groups: each is asked for once.

use std::collections::HashMap;

use nix::unistd::{Gid, Group, Uid, User};

/// The names that were asked for so far.
pub struct Owners {
    pub users: Names,
    pub groups: Names,
}

/// The names of one kind.
pub struct Names {
    ask: fn(u32) -> Option<String>,
    /// `None` for a number that has no name.
    known: HashMap<u32, Option<String>>,
}

impl Owners {
    /// Nobody was asked for yet.
    pub fn new() -> Owners {
        Owners {
            users: Names::by(|id| Some(User::from_uid(Uid::from_raw(id)).ok()??.name)),
            groups: Names::by(|id| Some(Group::from_gid(Gid::from_raw(id)).ok()??.name)),
        }
    }
}

impl Names {
    fn by(ask: fn(u32) -> Option<String>) -> Names {
        Names {
            ask,
            known: HashMap::new(),
        }
    }

    /// Of this number.
    pub fn name(&mut self, id: u32) -> Option<&str> {
        let name = self.known.entry(id).or_insert_with(|| (self.ask)(id));
        name.as_deref()
    }
}
