use super::*;
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn tasks_run_and_what_does_not_fit_stays_with_the_caller() {
    let workers = Workers::new(2);
    let (sender, receiver) = mpsc::channel();
    let mut tasks: Vec<u32> = (0..10).collect();
    workers.offer(&mut tasks);
    assert_eq!(tasks, [4, 5, 6, 7, 8, 9], "two for each thread");
    workers
        .start(move |task| sender.send(task).unwrap(), |_| {})
        .unwrap();
    let mut ran: Vec<u32> = (0..4)
        .map(|_| receiver.recv_timeout(PATIENCE).unwrap())
        .collect();
    ran.sort_unstable();
    assert_eq!(ran, [0, 1, 2, 3]);
    workers.close();
}

#[test]
fn a_panic_is_reported_and_the_thread_continues() {
    let workers = Workers::new(1);
    let (sender, receiver) = mpsc::channel();
    let reporter = sender.clone();
    workers
        .start(
            move |task: u32| {
                assert!(task != 1, "task one breaks");
                sender.send(task.to_string()).unwrap();
            },
            move |text| reporter.send(text).unwrap(),
        )
        .unwrap();
    workers.push_all(&mut vec![1, 2]);
    assert!(
        receiver
            .recv_timeout(PATIENCE)
            .unwrap()
            .contains("task one breaks")
    );
    assert_eq!(receiver.recv_timeout(PATIENCE).unwrap(), "2");
    workers.close();
}
