//! Growth: a pool takes further members, and what lies in the old layout moves to the new one while it serves.

mod machine;

use machine::Machine;
use windrow_engine::*;
use windrow_units::{MemberId, Redundancy, Uuid, VolumeId};

/// A pool with spares of so many MiB.
fn with_spares(redundancy: Redundancy, members: usize, mib: usize, spares: &[usize]) -> Machine {
    let mut machine = Machine::with(redundancy, members, mib, 100);
    spares.iter().for_each(|mib| add_spare(&mut machine, *mib));
    machine
}

fn add_spare(machine: &mut Machine, mib: usize) {
    let memory = &mut machine.memory;
    let slot = memory.data.len() as u8;
    memory.data.push(vec![0; mib << 20]);
    (memory.present.push(true), memory.failing.push(false), memory.written.push(0), memory.flushed.push(0));
    let change = MemberChange::AddSpare { uuid: Uuid([slot + 100; 16]), size_bytes: (mib as u64) << 20 };
    assert_eq!(machine.command(Control::Member { member: MemberId(slot), change }), Some(Ok(ControlReply::Done)));
}

fn shut_down(mut machine: Machine) -> Machine {
    assert_eq!(machine.command(Control::Shutdown { export: false }), Some(Ok(ControlReply::Done)));
    machine
}

fn grow(machine: &mut Machine, members: std::ops::Range<u8>) -> Option<Result<ControlReply, ControlError>> {
    machine.command(Control::Grow { members: members.map(MemberId).collect() })
}

fn pass(machine: &mut Machine, times: usize) {
    for _ in 0..times {
        machine.now_ns += 30_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
        machine.settle();
    }
}

fn write(machine: &mut Machine, volume: VolumeId, lbas: std::ops::Range<u64>, round: u64) {
    lbas.for_each(|lba| machine.write(volume, lba, (lba * 3 + round) as u8));
    machine.flush(volume);
}

fn verify(machine: &mut Machine, volume: VolumeId, lbas: std::ops::Range<u64>, round: u64) {
    lbas.for_each(|lba| assert_eq!(machine.byte(volume, lba), (lba * 3 + round) as u8, "block {lba}"));
}

/// Time goes by, and somebody writes a little, until nothing is left in the old layout.
fn restripe(machine: &mut Machine, volume: VolumeId) -> u32 {
    for round in 0..400 {
        if !machine.engine.status().restripe.active {
            return round;
        }
        machine.write(volume, 5000 + u64::from(round % 50), round as u8);
        machine.flush(volume);
        pass(machine, 3);
    }
    panic!("restriping does not end: {:?}\n{}", machine.engine.status().restripe, machine.engine.describe());
}

#[test]
fn a_pool_grows_and_moves_to_the_new_layout() {
    for (redundancy, members, spares) in [
        (Redundancy::Single, 3, vec![12, 12]),
        (Redundancy::Single, 4, vec![24]),
        (Redundancy::Double, 4, vec![12, 12, 12]),
        (Redundancy::Copies(2), 2, vec![12]),
        (Redundancy::Copies(2), 3, vec![12]),
        (Redundancy::Copies(2), 4, vec![12]),
        (Redundancy::None, 1, vec![12, 20]),
    ] {
        let mut machine = with_spares(redundancy, members, 12, &spares);
        let volume = machine.volume(1 << 30);
        write(&mut machine, volume, 0..900, 1);
        let before = machine.engine.status();
        let last = (members + spares.len()) as u8;
        assert_eq!(grow(&mut machine, members as u8..last), Some(Ok(ControlReply::Done)), "{redundancy:?} {members}");
        let status = machine.engine.status();
        assert!(status.restripe.active && status.plan.usable_bytes >= before.plan.usable_bytes, "{:?}", status.restripe);
        verify(&mut machine, volume, 0..900, 1);
        let rounds = restripe(&mut machine, volume);
        let status = machine.engine.status();
        assert!(status.plan.usable_bytes > before.plan.usable_bytes && status.plan.zones.len() == machine.memory.superblock().zones.len());
        assert!(rounds > 0 && status.restripe.segments_done == status.restripe.segments_total, "{:?}", status.restripe);
        verify(&mut machine, volume, 0..900, 1);
        let mut machine = shut_down(machine).crash();
        verify(&mut machine, volume, 0..900, 1);
        assert!(!machine.engine.status().restripe.active);
    }
}
