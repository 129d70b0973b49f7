//! Integration tests of the crate in one binary: one build and one link instead of many. A module
//! is named for the behaviour that it proves.

#[path = "../machine/mod.rs"]
mod machine;

mod apart;
mod capacity;
mod cut_checkpoints;
mod damage;
mod dedup;
mod dedup_index;
mod exchange;
mod exhausted;
mod failing_starts;
mod forged_checkpoints;
mod former;
mod given_up;
mod growth;
mod hard_starts;
mod journal;
mod journal_both;
mod journal_come_and_go;
mod journal_devices;
mod journal_failing_starts;
mod journal_packed;
mod labels;
mod latency;
mod loss;
mod members;
mod mute;
mod pacing;
mod policies;
mod rate;
mod rebuild;
mod rebuild_journal;
mod rebuild_order;
mod rebuild_silent;
mod recompression;
mod reduction;
mod removal;
mod scrub;
mod shadow;
mod sharing;
mod slow;
mod space;
mod spread;
mod stories;
mod warnings;
