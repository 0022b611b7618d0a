//! Limits of this process: the memory that its control groups allow, and the tasks that it may create.
//!
//! ```
//! use nowait_residency::cgroup::{Controller, Groups};
//! let groups = Groups::of_this_process(Controller::Memory);
//! match groups.limit() {
//!     Some(bytes) => println!("at most {bytes} bytes"),
//!     None => println!("no control group limits the memory"),
//! }
//! ```

pub mod cgroup;
pub mod proc;
pub mod tasks;
