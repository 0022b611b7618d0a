//! Child processes of the user nobody: root may do everything.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::children::{in_child_by, this_program};

/// The ID of the user nobody, and of the group.
pub const NOBODY: u32 = 65_534;

/// Runs the calling test again in a child of the user nobody. `prepare` may set variables.
pub fn in_child_as_nobody(role: &str, prepare: impl FnOnce(&mut Command)) {
    // The user nobody may not have access to the directory of the test program.
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    rustix::fs::chmod(dir.path(), 0o755.into()).unwrap();
    let program = dir.path().join("program");
    slowdisk::copy_program(this_program(), &program).unwrap();
    let mut command = Command::new(program);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    prepare(&mut command);
    in_child_by(command, role);
}
