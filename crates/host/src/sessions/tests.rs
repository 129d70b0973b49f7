use super::*;
use windrow_io::Reply;
use windrow_types::VolumeId;

struct Null;

impl Sink for Null {
    fn complete(&self, completions: &mut Vec<Completion>) {
        completions.clear();
    }
}

fn flush(id: u64) -> Request {
    Request {
        id: RequestId(id),
        volume: VolumeId(1),
        op: Op::Flush,
    }
}

fn done(id: RequestId) -> Completion {
    Completion {
        id,
        result: Ok(Reply::Done),
        lsns: None,
    }
}

#[test]
fn slots_are_used_again_and_the_front_ends_ids_come_back() {
    let sessions = Sessions::default();
    let session = sessions.open(Arc::new(Null));
    let mut requests = vec![flush(u64::MAX), flush(7)];
    session.register(&mut requests, 100);
    assert!(
        requests
            .iter()
            .all(|request| session_number(request.id) == session.number())
    );
    let mut out = Vec::new();
    session.finish([done(requests[1].id)].into_iter(), 150, &mut out);
    assert_eq!(out[0].id, RequestId(7));
    let mut more = vec![flush(8)];
    session.register(&mut more, 200);
    assert_eq!(more[0].id, requests[1].id, "the free slot is taken again");
    assert_eq!(session.in_flight(), 2);
    assert_eq!(
        sessions.latencies().of(Operation::Flush).summary().max_ns,
        50
    );
}

#[test]
fn a_request_is_answered_exactly_once() {
    let sessions = Sessions::default();
    let session = sessions.open(Arc::new(Null));
    let mut requests = vec![flush(1), flush(2)];
    session.register(&mut requests, 0);
    let mut out = Vec::new();
    session.finish([done(requests[0].id)].into_iter(), 1, &mut out);
    session.fail(RequestError::Stopped, &mut out);
    session.fail(RequestError::Stopped, &mut out);
    session.finish(
        [
            done(requests[0].id),
            done(requests[1].id),
            done(RequestId(99)),
        ]
        .into_iter(),
        2,
        &mut out,
    );
    assert_eq!(
        out.iter()
            .map(|completion| completion.id.0)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    assert_eq!(session.in_flight(), 0);
}

/// The late completion of a request that the stop of the pool has answered must not answer the next
/// one: a flush would succeed without reaching the engine.
#[test]
fn a_completion_after_the_stop_answers_no_other_request() {
    let sessions = Sessions::default();
    let session = sessions.open(Arc::new(Null));
    let (mut first, mut next, mut out) = ([flush(1)], [flush(2)], Vec::new());
    session.register(&mut first, 0);
    session.fail(RequestError::Stopped, &mut out);
    session.register(&mut next, 1);
    assert_ne!(first[0].id, next[0].id);
    out.clear();
    session.finish([done(first[0].id)].into_iter(), 2, &mut out);
    assert!(out.is_empty(), "{out:?}");
    session.fail(RequestError::Stopped, &mut out);
    assert!(
        out.len() == 1 && out[0].id == RequestId(2) && out[0].result.is_err(),
        "{out:?}"
    );
}

#[test]
fn closed_sessions_are_gone_but_their_latencies_count() {
    let sessions = Sessions::default();
    let session = sessions.open(Arc::new(Null));
    let mut requests = vec![flush(1)];
    session.register(&mut requests, 0);
    session.finish([done(requests[0].id)].into_iter(), 5, &mut Vec::new());
    sessions.close(&session);
    assert!(sessions.get(session.number()).is_none());
    assert_eq!(sessions.latencies().of(Operation::Flush).count(), 1);
    assert_ne!(sessions.open(Arc::new(Null)).number(), session.number());
}
