use super::*;

#[test]
fn numbers_are_those_of_the_format() {
    assert_eq!(Stream::ALL.map(Stream::number), [0, 1, 2, 3]);
    for stream in Stream::ALL {
        assert_eq!(Stream::from_number(stream.number()), Some(stream));
    }
    assert_eq!(Stream::from_number(4), None);
}

#[test]
fn moved_blocks_do_not_mix_with_user_blocks() {
    let streams = [Origin::User, Origin::Moved, Origin::CheckpointPage].map(placement);
    assert_eq!(streams, [Stream::User, Stream::Cleaned, Stream::Checkpoint]);
}
