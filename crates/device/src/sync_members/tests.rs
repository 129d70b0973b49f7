use super::*;
use crate::{
    Allocation, CountingMember, Fault, FaultKind, FaultyMember, FileMember, OpenOptions,
    RamAllocation, RamMember, create_file,
};
use windrow_io::Buf;

const SIZE: u64 = 1 << 20;

fn number_of(member: usize, block: u64) -> u8 {
    (member as u64 * 101 + block * 7 + 1) as u8
}

fn filled(index: usize, member: impl Member + 'static) -> Option<Arc<dyn Member>> {
    for block in 0..SIZE / 4096 {
        member
            .write_at(block * 4096, &[number_of(index, block); 4096])
            .expect("write");
    }
    Some(Arc::new(member))
}

fn ram() -> RamMember {
    RamMember::new(SIZE, RamAllocation::Sparse).expect("memory")
}

fn items(members: usize) -> Vec<ReadItem> {
    let item = |i: u64| {
        let member = MemberId((i % members as u64) as u8);
        ReadItem {
            member,
            offset: i * 37 % 256 * 4096,
            buf: Buf::unpooled(4096),
            result: Ok(()),
        }
    };
    (0..1000).map(item).collect()
}

fn check(items: &[ReadItem], bad: impl Fn(&ReadItem) -> bool) {
    for item in items {
        assert_eq!(item.result.is_err(), bad(item), "{:?}", item.result);
        assert_eq!(item.buf.len(), 4096);
        if item.result.is_ok() {
            let expected = number_of(item.member.index(), item.offset / 4096);
            assert!(item.buf.iter().all(|b| *b == expected));
        }
    }
}

#[test]
fn many_reads_come_back_right_from_files_memory_and_wrappers() {
    let folder = tempfile::tempdir().expect("folder");
    let file = |name: &str| {
        let path = folder.path().join(name);
        create_file(&path, SIZE, Allocation::Preallocate).expect("create");
        FileMember::open(&path, &OpenOptions::default()).expect("open")
    };
    let tables: [Members; 3] = [
        vec![filled(0, file("a")), filled(1, file("b")), None],
        vec![filled(0, ram()), filled(1, ram()), None],
        vec![
            filled(0, CountingMember::new(file("c"))),
            filled(1, ram()),
            None,
        ],
    ];
    for members in tables {
        let mut io = SyncMembers::new(members);
        assert_eq!(
            (
                io.member_count(),
                io.size(MemberId(1)),
                io.size(MemberId(2)),
                io.is_present(MemberId(2))
            ),
            (3, SIZE, 0, false)
        );
        let mut items = items(3);
        items[5].offset = SIZE;
        for _ in 0..2 {
            io.read_many(&mut items);
            check(&items, |item| {
                item.member == MemberId(2) || item.offset == SIZE
            });
        }
        let mut few = items.split_off(996);
        io.read_many(&mut few[..3]);
        check(&few[..3], |item| item.member == MemberId(2));
        io.write(MemberId(0), 0, &[9; 4096]).expect("write");
        io.flush(MemberId(0)).expect("flush");
        let mut block = [0; 4096];
        io.read(MemberId(0), 0, &mut block).expect("read");
        assert_eq!(block, [9; 4096]);
        assert!(
            io.read(MemberId(9), 0, &mut block).is_err(),
            "an id beyond the table"
        );
    }
}

#[test]
fn a_member_that_is_gone_or_failed_a_flush_is_not_present_any_more() {
    let members: Vec<Arc<FaultyMember<RamMember>>> =
        (0..3).map(|_| Arc::new(FaultyMember::new(ram()))).collect();
    members[0].add(Fault {
        kind: FaultKind::ReadError(MemberErrorKind::Gone),
        range: 0..SIZE,
        strikes: Some(1),
    });
    members[1].add(Fault {
        kind: FaultKind::FlushError(MemberErrorKind::Media),
        range: 0..SIZE,
        strikes: Some(1),
    });
    members[2].add(Fault {
        kind: FaultKind::ReadError(MemberErrorKind::Media),
        range: 0..SIZE,
        strikes: Some(1),
    });
    let mut io = SyncMembers::new(
        members
            .iter()
            .map(|m| Some(m.clone() as Arc<dyn Member>))
            .collect(),
    );
    let mut block = [0; 4096];
    assert!(io.read(MemberId(0), 0, &mut block).is_err() && !io.is_present(MemberId(0)));
    assert!(
        io.flush(MemberId(1)).is_err()
            && io.flush(MemberId(1)).is_err()
            && !io.is_present(MemberId(1))
    );
    assert!(
        io.read(MemberId(2), 0, &mut block).is_err() && io.is_present(MemberId(2)),
        "a medium error is one of a range"
    );
    io.read(MemberId(2), 0, &mut block).expect("read");
}
