use super::*;
use crate::Broken;
use crate::content::fill_sector;
use windrow_engine::ControlReply;
use windrow_io::{Completion, Payload, Reply, RequestError};
use windrow_types::Lsn;

const V: VolumeId = VolumeId(1);

fn model() -> Model {
    let mut model = Model::default();
    let create = VolumeChange::Create("a".to_string(), 8);
    model.submit_change(&create);
    model
        .complete_change(&create, &Ok(ControlReply::Volume(V)))
        .unwrap();
    model
}

fn write(model: &mut Model, id: u64, block: u64, stamp: u64) {
    model.submit(
        RequestId(id),
        V,
        Asked::Write {
            at: block * 8,
            count: 8,
            stamps: vec![stamp],
            fua: false,
        },
    );
}

fn done(model: &mut Model, id: u64, lsns: Option<(u64, u64)>) -> Result<(), Violation> {
    let lsns = lsns.map(|(first, last)| (Lsn(first), Lsn(last)));
    model.complete(
        &Completion {
            id: RequestId(id),
            result: Ok(Reply::Done),
            lsns,
        },
        |_| false,
    )
}

fn read(model: &mut Model, id: u64, block: u64, stamp: u64) -> Result<(), Violation> {
    model.submit(
        RequestId(id),
        V,
        Asked::Read {
            at: block * 8,
            count: 8,
        },
    );
    let mut bytes = [0; 4096];
    bytes
        .chunks_mut(512)
        .enumerate()
        .for_each(|(sector, out)| fill_sector(out, V, block, sector, stamp));
    model.complete(
        &Completion {
            id: RequestId(id),
            result: Ok(Reply::Data(vec![Payload::copy_of(&bytes)])),
            lsns: None,
        },
        |_| false,
    )
}

#[test]
fn an_old_block_is_found_out() {
    let mut model = model();
    write(&mut model, 1, 3, 100);
    done(&mut model, 1, Some((2, 2))).unwrap();
    write(&mut model, 2, 3, 200);
    read(&mut model, 3, 3, 100).unwrap();
    done(&mut model, 2, Some((3, 3))).unwrap();
    let violation = read(&mut model, 4, 3, 100).unwrap_err();
    assert_eq!(violation.broken, Broken::Content);
    assert!(
        violation.text.contains("stamp 100 of volume 1 block 3"),
        "{violation}"
    );
}

#[test]
fn orders_are_unique_and_rise_with_acknowledgement() {
    let mut model = model();
    write(&mut model, 1, 0, 100);
    write(&mut model, 2, 1, 101);
    done(&mut model, 2, Some((5, 5))).unwrap();
    assert_eq!(
        done(&mut model, 1, Some((5, 5))).unwrap_err().broken,
        Broken::Protocol
    );
    write(&mut model, 3, 2, 102);
    assert_eq!(
        done(&mut model, 3, Some((4, 4))).unwrap_err().broken,
        Broken::Protocol,
        "5 had been acknowledged before"
    );
}

#[test]
fn a_flush_promises_what_was_acknowledged_before_it_was_submitted() {
    let mut model = model();
    write(&mut model, 1, 0, 100);
    done(&mut model, 1, Some((2, 2))).unwrap();
    model.submit(RequestId(2), V, Asked::Flush);
    write(&mut model, 3, 1, 101);
    done(&mut model, 3, Some((3, 3))).unwrap();
    done(&mut model, 2, None).unwrap();
    assert_eq!(model.promised(), 2);
    model.submit(
        RequestId(4),
        V,
        Asked::Zero {
            at: 0,
            count: 8,
            no_hole: None,
            fua: true,
        },
    );
    done(&mut model, 4, Some((4, 4))).unwrap();
    assert_eq!(model.promised(), 4);
}

#[test]
fn errors_are_only_allowed_where_they_are_due() {
    let mut model = model();
    let fail = |model: &mut Model, id: u64, error: RequestError, full: bool| {
        write(model, id, 0, 100 + id);
        model.complete(
            &Completion {
                id: RequestId(id),
                result: Err(error),
                lsns: None,
            },
            |_| full,
        )
    };
    assert!(fail(&mut model, 1, RequestError::NoSpace, true).is_ok());
    assert!(fail(&mut model, 2, RequestError::NoSpace, false).is_err());
    assert!(fail(&mut model, 3, RequestError::Io, true).is_err());
    assert!(fail(&mut model, 4, RequestError::NoVolume, true).is_err());
    read(&mut model, 5, 0, crate::content::ZERO).unwrap();
    assert_eq!(
        done(&mut model, 99, None).unwrap_err().broken,
        Broken::Protocol
    );
}
