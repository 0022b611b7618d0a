//! Names of users and groups. Each number is looked up once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use nix::unistd::{Gid, Group, Uid, User};

/// The names of users and groups that were looked up.
pub struct Owners {
    pub users: Names,
    pub groups: Names,
}

/// The names of users, or of groups.
pub struct Names {
    look_up: fn(u32) -> Option<String>,
    /// `None` for a number without a name.
    known: RefCell<HashMap<u32, Option<Rc<str>>>>,
}

impl Owners {
    /// No name was looked up.
    pub fn new() -> Owners {
        Owners {
            users: Names::by(|id| Some(User::from_uid(Uid::from_raw(id)).ok()??.name)),
            groups: Names::by(|id| Some(Group::from_gid(Gid::from_raw(id)).ok()??.name)),
        }
    }
}

impl Names {
    fn by(look_up: fn(u32) -> Option<String>) -> Names {
        Names {
            look_up,
            known: RefCell::default(),
        }
    }

    /// The name of a number, if it has one.
    pub fn of(&self, id: u32) -> Option<Rc<str>> {
        let mut known = self.known.borrow_mut();
        let name = known
            .entry(id)
            .or_insert_with(|| (self.look_up)(id).map(Rc::from));
        name.clone()
    }
}
