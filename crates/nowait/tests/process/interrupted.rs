//! A blocking call of a file that a signal interrupts is made again.

use nowait::{Engine, OpenOptions, Result};

use crate::common::children::alone;
use crate::common::files::{patterned, scratch};
use crate::failing::{Case, Page, When, Which, failing};

#[test]
fn a_sync_that_is_interrupted_is_repeated() {
    type Sync = fn(&nowait::File) -> Result<()>;
    alone(|| {
        let dir = scratch();
        let path = patterned(dir.path(), "file", 100);
        let calls: [(&str, _, Sync); 2] = [
            ("fsync", libc::SYS_fsync, nowait::File::blocking_sync_all),
            (
                "fdatasync",
                libc::SYS_fdatasync,
                nowait::File::blocking_sync_data,
            ),
        ];
        for (name, call, sync) in calls {
            let case = Case {
                name,
                call,
                which: Which::All,
                errno: libc::EINTR,
                when: When::Nth(1),
            };
            let made = failing(case, Page::new(), || {
                let engine = Engine::new().unwrap();
                let mut options = OpenOptions::new();
                let file = options.write(true).engine(&engine).blocking_open(&path);
                sync(&file.unwrap()).unwrap();
            });
            assert_eq!(made, Ok(2), "{name}");
        }
    });
}
