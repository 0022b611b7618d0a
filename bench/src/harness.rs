//! The parts that all areas share: plans and rounds, the state of the page cache, statistics, charts and
//! reports.

pub mod cache;
pub mod class;
pub mod contender;
pub mod delay;
pub mod draws;
pub mod files;
pub mod machine;
pub mod offsets;
pub mod plan;
pub mod plot;
pub mod ratio;
pub mod report;
pub mod round;
pub mod settings;
pub mod sign_test;
pub mod turn;
pub mod usage;
