use super::*;
use crate::control::ScrubAction;
use crate::failure::id;
use crate::offline::{ScratchSpec, ram_members, scratch_pool};
use crate::{HostOptions, Pool, daemon};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windrow_device::{
    Allocation, Fault, FaultKind, FaultyMember, FileMember, Member, OpenOptions, create_file,
};
use windrow_engine::{Control, VolumeBlock};

fn pool() -> Pool {
    let opened = scratch_pool(ram_members(4, 32 << 20).unwrap(), &ScratchSpec::default()).unwrap();
    Pool::start(
        opened.engine,
        opened.members,
        opened.buffers,
        HostOptions::default(),
    )
    .unwrap()
}

fn of(state: ScrubState) -> ScrubReport {
    ScrubReport {
        state,
        ..ScrubReport::default()
    }
}

#[test]
fn the_exit_code_says_what_was_found() {
    assert_eq!(of(ScrubState::Completed).exit_code(), 0);
    assert_eq!(
        ScrubReport {
            wrong_blocks: 2,
            ..of(ScrubState::Completed)
        }
        .exit_code(),
        1
    );
    assert_eq!(
        ScrubReport {
            wrong_blocks: 2,
            lost_blocks: 1,
            ..of(ScrubState::Completed)
        }
        .exit_code(),
        4
    );
    assert_eq!(
        ScrubReport {
            damaged_batches: 1,
            ..of(ScrubState::Completed)
        }
        .exit_code(),
        1,
        "what lives there was moved, or counts as lost"
    );
    for state in [
        ScrubState::None,
        ScrubState::Running,
        ScrubState::Paused,
        ScrubState::Stopped,
    ] {
        assert_eq!(of(state).exit_code(), 8, "{state:?}");
    }
}

#[test]
fn shares_and_rates_divide_by_nothing() {
    assert_eq!(
        (
            of(ScrubState::Running).done_per_mille(),
            of(ScrubState::Running).rate()
        ),
        (0, 0)
    );
    assert_eq!(of(ScrubState::Stopped).done_per_mille(), 0);
    assert_eq!(
        ScrubReport {
            segments_done: 1,
            segments_total: 4,
            ..of(ScrubState::Stopped)
        }
        .done_per_mille(),
        250
    );
    assert_eq!(
        ScrubReport {
            read_bytes: u64::MAX,
            left_bytes: u64::MAX,
            active_ms: 1,
            ..of(ScrubState::Running)
        }
        .rate(),
        u64::MAX
    );
    assert_eq!(
        ScrubReport {
            read_bytes: 7,
            ..of(ScrubState::Running)
        }
        .done_per_mille(),
        999,
        "it has not ended yet"
    );
    assert_eq!(
        ScrubReport {
            read_bytes: 300,
            left_bytes: 700,
            active_ms: 1500,
            ..of(ScrubState::Paused)
        }
        .rate(),
        200
    );
}

#[test]
fn what_is_left_is_known_from_the_segments_and_lost_blocks_have_names() {
    let pool = pool();
    pool.control(Control::VolumeCreate {
        name: "data".to_owned(),
        size_bytes: 1 << 20,
    })
    .unwrap();
    let mut status = pool.status().unwrap();
    let total = status.plan.segments;
    let each = {
        let shape = &status.plan.zones[0].shape;
        u64::from(shape.width) * u64::from(shape.rows) * BLOCK_BYTES
    };
    status.scrub.state = ScrubState::Running;
    (
        status.data_segments,
        status.scrub.segments_total,
        status.scrub.segments_done,
    ) = (3, total, 0);
    status.scrub.read_bytes = each;
    assert_eq!(ScrubReport::new(&status).left_bytes, 2 * each);
    assert_eq!(ScrubReport::new(&status).done_per_mille(), 333);
    status.scrub.segments_done = total - 1;
    assert_eq!(
        ScrubReport::new(&status).left_bytes,
        each,
        "no more than the segments that are left"
    );
    (status.members[0].state, status.scrub.segments_done) = ("missing", 0);
    assert_eq!(
        ScrubReport::new(&status).left_bytes,
        3 * (each * 3 / 4) - each,
        "an absent member is not read"
    );
    status.members[0].state = "online";
    // Spares and journal devices must not count as data to read: two of them and four members would
    // show a third done at the start.
    for (state, journal) in [("spare", false), ("removed", false), ("online", true)] {
        let other = windrow_engine::MemberStatus {
            state,
            journal,
            ..status.members[0].clone()
        };
        status.members.push(other);
        assert_eq!(
            ScrubReport::new(&status).left_bytes,
            2 * each,
            "beside one that holds no data: {state}"
        );
    }
    status.scrub.state = ScrubState::Completed;
    status.scrub.lost = vec![
        VolumeBlock {
            volume: status.volumes[0].id,
            lba: 9,
        },
        VolumeBlock {
            volume: VolumeId(77),
            lba: 1,
        },
    ];
    let report = ScrubReport::new(&status);
    assert_eq!(report.left_bytes, 0);
    let lost: Vec<_> = report
        .lost
        .iter()
        .map(|lost| (lost.volume.as_str(), lost.block))
        .collect();
    assert_eq!(lost, [("data", 9), ("#77", 1)]);
}

#[test]
fn commands_reach_the_engine_and_are_refused_by_id() {
    let pool = pool();
    let refused = |action, rate| daemon::scrub(&pool, action, rate).unwrap_err().id;
    for action in [ScrubAction::Pause, ScrubAction::Resume, ScrubAction::Stop] {
        assert_eq!(
            refused(action, None),
            id::SCRUB_STATE,
            "{action:?} without a scrub"
        );
        assert_eq!(
            refused(action, Some(5)),
            id::POOL_VALUE,
            "{action:?} takes no rate"
        );
    }
    daemon::scrub(&pool, ScrubAction::Start, Some(1 << 40)).unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    let report = loop {
        let report = pool.report().unwrap().scrub;
        if !report.is_under_way() {
            break report;
        }
        assert!(Instant::now() < end, "{report:?}");
        std::thread::sleep(Duration::from_millis(2));
    };
    assert_eq!(
        (report.state, report.exit_code(), report.bytes_per_second),
        (ScrubState::Completed, 0, 1 << 40)
    );
    assert!(report.started_unix_s > 1_700_000_000 && report.segments_done == report.segments_total);
}

/// An offline repair stops an interrupted scrub and starts its own at once: it must wait for the
/// first reads of the other.
#[test]
fn another_scrub_begins_when_what_the_last_one_has_under_way_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    // (Files: reads from memory are answered at once, by the engine's own thread.)
    let member = |number: usize| {
        let path = dir.path().join(format!("m{number}"));
        create_file(&path, 32 << 20, Allocation::Sparse).unwrap();
        Arc::new(FaultyMember::new(
            FileMember::open(&path, &OpenOptions::default()).unwrap(),
        ))
    };
    let members: Vec<_> = (0..4).map(member).collect();
    let table = members
        .iter()
        .map(|member| Some(member.clone() as Arc<dyn Member>))
        .collect();
    let opened = scratch_pool(table, &ScratchSpec::default()).unwrap();
    let pool = Pool::start(
        opened.engine,
        opened.members,
        opened.buffers,
        HostOptions::default(),
    )
    .unwrap();
    members[1].add(Fault::everywhere(FaultKind::Hang));
    // (The label of each member is read first.)
    daemon::scrub(&pool, ScrubAction::Start, None).unwrap();
    daemon::scrub(&pool, ScrubAction::Stop, None).unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| daemon::scrub(&pool, ScrubAction::Start, None));
        while !starting.is_finished() && begun.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waits = !starting.is_finished();
        members[1].clear();
        starting.join().unwrap().unwrap();
        assert!(waits, "something of the last one is under way");
    });
}

/// A scrub stopped at 39 % must stay there, not show 21 % or 10 % by another measure of progress.
#[test]
fn a_scrub_that_is_stopped_stays_where_it_was_shown() {
    let mut progress = Progress::default();
    let running = ScrubReport {
        started_unix_s: 7,
        read_bytes: 39,
        left_bytes: 61,
        segments_done: 1,
        segments_total: 10,
        ..of(ScrubState::Running)
    };
    let mut scrub = running.clone();
    progress.keep(&mut scrub);
    assert_eq!(scrub.done_per_mille(), 390);
    let mut stopped = ScrubReport {
        state: ScrubState::Stopped,
        left_bytes: 0,
        ..running
    };
    progress.keep(&mut stopped);
    assert_eq!(stopped.done_per_mille(), 390);
    let mut next = ScrubReport {
        started_unix_s: 8,
        left_bytes: 100,
        ..of(ScrubState::Running)
    };
    progress.keep(&mut next);
    assert_eq!(next.done_per_mille(), 0);
}
