use super::*;
use crate::member::Member;
use crate::{RamAllocation, RamMember};
use std::sync::Arc;
use windrow_io::{IoTag, MemberOp};

fn members(count: usize) -> Members {
    (0..count)
        .map(|_| {
            Some(
                Arc::new(RamMember::new(1 << 20, RamAllocation::Sparse).expect("memory"))
                    as Arc<dyn Member>,
            )
        })
        .collect()
}

fn command(member: u8, tag: u64) -> MemberCommand {
    MemberCommand {
        member: MemberId(member),
        tag: IoTag(tag),
        op: MemberOp::Flush,
    }
}

fn next(waiting: &mut Waiting) -> Option<(u8, u64)> {
    waiting
        .next()
        .map(|command| (command.member.0, command.tag.0))
}

#[test]
fn a_share_leaves_something_for_others_and_is_enough_for_uneven_loads() {
    let cases = [
        (256, 1, 256),
        (256, 2, 192),
        (256, 3, 128),
        (256, 8, 48),
        (128, 8, 24),
        (16, 2, 12),
        (16, 4, 6),
        (16, 8, 4),
        (16, 64, 4),
        (4, 2, 3),
        (1, 8, 1),
    ];
    for (places, members, expected) in cases {
        assert_eq!(
            share(places, members),
            expected,
            "{places} places, {members} members"
        );
    }
    for members in 2..=64 {
        assert!(
            share(256, members) as usize * (members / 2) <= 224,
            "half of {members} members are unresponsive"
        );
        assert!(
            share(256, members) as usize * members >= 256,
            "no place stays empty while all {members} members have work"
        );
    }
}

#[test]
fn members_take_turns_and_none_goes_beyond_its_share() {
    let mut waiting = Waiting::new(16, &members(4));
    (0..20).for_each(|tag| waiting.push(command(1, tag)));
    (20..23).for_each(|tag| waiting.push(command(3, tag)));
    assert_eq!(
        [(); 5].map(|()| next(&mut waiting)),
        [
            Some((1, 0)),
            Some((3, 20)),
            Some((1, 1)),
            Some((3, 21)),
            Some((1, 2))
        ]
    );
    assert_eq!(
        std::iter::from_fn(|| next(&mut waiting)).collect::<Vec<_>>(),
        [(3, 22), (1, 3), (1, 4), (1, 5)],
        "six of sixteen"
    );
    assert!(
        !waiting.has_room(MemberId(1))
            && waiting.has_room(MemberId(3))
            && waiting.has_room(MemberId(0))
            && !waiting.has_room(MemberId(9))
    );
    waiting.release(MemberId(3));
    assert_eq!(next(&mut waiting), None, "another's place is none for it");
    waiting.release(MemberId(1));
    assert_eq!(
        (next(&mut waiting), next(&mut waiting)),
        (Some((1, 6)), None)
    );
    // Other members start at once in any case.
    waiting.push(command(0, 30));
    assert_eq!(next(&mut waiting), Some((0, 30)));
}

#[test]
fn shares_follow_the_number_of_members() {
    let mut table = members(2);
    let mut waiting = Waiting::new(16, &table);
    (0..40).for_each(|tag| waiting.push(command(0, tag)));
    assert_eq!(std::iter::from_fn(|| next(&mut waiting)).count(), 12);
    table[1] = None;
    waiting.adapt(&table);
    assert_eq!(
        std::iter::from_fn(|| next(&mut waiting)).count(),
        4,
        "alone it has all"
    );
    table.resize(8, None);
    table[1..].clone_from_slice(&members(7));
    waiting.adapt(&table);
    (0..13).for_each(|_| waiting.release(MemberId(0)));
    assert_eq!(
        std::iter::from_fn(|| next(&mut waiting)).collect::<Vec<_>>(),
        [(0, 16)],
        "one of eight has four"
    );
    waiting.push(command(7, 50));
    assert!(waiting.has_waiting(MemberId(7)) && !waiting.holds_place(MemberId(7)));
    assert_eq!(next(&mut waiting), Some((7, 50)));
    waiting.clear();
    waiting.release(MemberId(0));
    assert!(next(&mut waiting).is_none() && !waiting.has_waiting(MemberId(0)));
}
