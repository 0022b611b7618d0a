//! The result of one check, and lists of results.

use nowait::support::Support;
use rustix::io::Errno;
use serde::{Serialize, Serializer};

/// The result of one check.
#[derive(Serialize)]
pub struct Fact {
    #[serde(skip)]
    pub key: String,
    #[serde(skip)]
    pub label: String,
    /// True if it works; `None` if it was not tried.
    pub ok: Option<bool>,
    /// The reason, or an additional note if it works.
    pub why: Option<String>,
}

impl Fact {
    /// It works.
    pub fn yes(key: impl Into<String>, label: impl Into<String>) -> Fact {
        Fact {
            key: key.into(),
            label: label.into(),
            ok: Some(true),
            why: None,
        }
    }

    /// It does not.
    pub fn no(key: impl Into<String>, label: impl Into<String>, why: impl Into<String>) -> Fact {
        Fact {
            ok: Some(false),
            why: Some(why.into()),
            ..Fact::yes(key, label)
        }
    }

    /// It was not tried.
    pub fn untried(
        key: impl Into<String>,
        label: impl Into<String>,
        why: impl Into<String>,
    ) -> Fact {
        Fact {
            ok: None,
            ..Fact::no(key, label, why)
        }
    }

    /// It failed with this errno.
    pub fn refused(key: impl Into<String>, label: impl Into<String>, errno: i32) -> Fact {
        let why = match Errno::from_raw_os_error(errno) {
            Errno::NOSYS => "not in this kernel, or hidden by a sandbox (ENOSYS)".to_owned(),
            Errno::PERM => "denied by the kernel, a sandbox or a sysctl (EPERM)".to_owned(),
            Errno::ACCESS => "denied (EACCES)".to_owned(),
            Errno::OPNOTSUPP => "refused by this filesystem or kernel (EOPNOTSUPP)".to_owned(),
            Errno::INVAL => "not supported by this kernel or for this file (EINVAL)".to_owned(),
            Errno::NOMEM => "not enough lockable memory: see RLIMIT_MEMLOCK (ENOMEM)".to_owned(),
            _ => std::io::Error::from_raw_os_error(errno).to_string(),
        };
        Fact::no(key, label, why)
    }

    /// The result of a system call.
    pub fn tried<T>(key: &str, label: &str, tried: Result<T, Errno>) -> Fact {
        match tried {
            Ok(_) => Fact::yes(key, label),
            Err(errno) => Fact::refused(key, label, errno.raw_os_error()),
        }
    }

    /// The support that the library has found.
    pub fn support(key: &str, label: &str, support: Support) -> Fact {
        match support {
            Support::Untried => Fact::untried(key, label, "not requested"),
            Support::Yes => Fact::yes(key, label),
            Support::No(errno) => Fact::refused(key, label, errno),
        }
    }

    /// Adds a note if it works.
    pub fn noting(self, remark: impl Into<String>) -> Fact {
        match self.ok {
            Some(true) => Fact {
                why: Some(remark.into()),
                ..self
            },
            _ => self,
        }
    }
}

/// Facts in the order in which they are shown. In JSON they are an object with their keys.
#[derive(Default)]
pub struct Facts(pub Vec<Fact>);

impl Facts {
    /// The fact with this key.
    pub fn get(&self, key: &str) -> Option<&Fact> {
        self.0.iter().find(|fact| fact.key == key)
    }
}

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|fact| (&fact.key, fact)))
    }
}
