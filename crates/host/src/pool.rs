//! A running pool: the driver, its threads, and the handles of front-ends and administrators.

mod catalogue;
pub(crate) mod clients;
mod emptying;
mod exchange;
mod hot_spares;
mod looks;
pub(crate) mod partition;
mod replacement;
mod settle;
mod sizes;

use crate::ConnectionReport;
use crate::alarm;
use crate::daemon;
use crate::directory::{Directory, KnownMember, MemberPlace};
use crate::driver::{Driver, Own, StateMachine, start_workers};
use crate::exports::{ExportTable, NamedExport, VolumeView};
use crate::failure::{Failure, id};
use crate::hook::Notifier;
use crate::lanes::Attendance;
use crate::members::Members;
use crate::offline::OpenRequest;
use crate::reaper::ReaperThread;
use crate::recorder::Lot;
use crate::report::{PoolReport, PropertyReport, VolumeReport};
use crate::schedule::unix_now;
use crate::served::OpenMember;
use crate::sessions::{Client, SessionState, lock};
use catalogue::Catalogue;
use hot_spares::HotSpares;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, OnceLock, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use windrow_device::queue::{Members as MemberTable, QueueKind, QueueOptions, Reaper};
use windrow_engine::Engine;
use windrow_engine::{Control, ControlError, ControlReply, Notice, PoolStatus};
use windrow_frontend::{ExportInfo, ExportSource, Session, Sink};
use windrow_geometry::MAX_MEMBERS;
use windrow_io::{BufPool, Completion, Op, Request, RequestError};
use windrow_types::{MemberId, Uuid, VolumeId};

/// After the pool has ended: how long devices that are not known to hang may take for commands in
/// flight, mostly discards.
const LETTING_GO: Duration = Duration::from_secs(60);

/// Upper limit of waits: a sum with the present time must not overflow.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// Options of a running pool.
#[derive(Clone, Debug, Default)]
pub struct HostOptions {
    /// Worker threads; `None`: one less than there are cores, at least one.
    pub workers: Option<usize>,
    /// Execution of member commands.
    pub queue: QueueOptions,
    /// Command of the event hook, run by `/bin/sh`.
    pub event_command: Option<String>,
    /// Differences of the exports from the volumes.
    pub exports: ExportTable,
    /// Options with which members were opened; devices added later are opened in the same way.
    pub open: OpenRequest,
    /// Members as known from earlier runs.
    pub known: Vec<KnownMember>,
    /// Time after which spares replace members that were missing at the start. Members that failed
    /// are replaced at once. `None`: never.
    pub spare_patience: Option<Duration>,
}

struct Threads {
    service: JoinHandle<()>,
    reaper: ReaperThread,
    hot_spares: Option<JoinHandle<()>>,
}

struct Inner {
    driver: Arc<Driver>,
    uuid: Uuid,
    buffers: BufPool,
    notifier: Arc<Notifier>,
    catalogue: RwLock<Catalogue>,
    names: Arc<Directory>,
    open: OpenRequest,
    /// Held while a member changes.
    exchanging: Mutex<()>,
    looks: looks::Looks,
    /// Progress of zeroing a device before it comes in: bytes done, bytes in all.
    zeroing: Mutex<Option<(u64, u64)>>,
    emptying: emptying::Emptying,
    progress: Mutex<crate::scrub::Progress>,
    /// Held while properties are read, changed and set.
    setting: Mutex<()>,
    hot_spares: Arc<HotSpares>,
    /// Time until which spares wait for members that were missing at the start; `None`: spares are
    /// not used automatically.
    spares_wait_until: Option<Instant>,
    connections: OnceLock<Box<dyn Fn() -> Option<ConnectionReport> + Send + Sync>>,
    threads: Mutex<Option<Threads>>,
}

/// A running pool. Clones are handles of the same pool. When the last one is dropped, its threads
/// end as after a power cut; use [`Pool::shutdown`] to end cleanly.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

impl Pool {
    /// Starts the threads around an open engine. `buffers` is the pool of buffers that the engine
    /// uses, too.
    ///
    /// # Errors
    /// A queue or thread could not be started.
    pub fn start(
        engine: Engine,
        members: MemberTable,
        buffers: BufPool,
        options: HostOptions,
    ) -> Result<Self, Failure> {
        Self::start_machine(Box::new(engine), members, buffers, options)
    }

    pub(crate) fn start_machine(
        machine: Box<dyn StateMachine>,
        table: MemberTable,
        buffers: BufPool,
        options: HostOptions,
    ) -> Result<Self, Failure> {
        let failure = |error: std::io::Error| {
            Failure::new(id::POOL_OPEN, "cannot start the threads of the pool", error)
        };
        let status = machine.status();
        let paths = table
            .iter()
            .map(|member| {
                member
                    .as_ref()
                    .map(|member| exchange::path_of(&**member))
                    .unwrap_or_default()
            })
            .collect();
        let hot_spares = Arc::new(HotSpares::default());
        let poked = hot_spares.clone();
        let names = Arc::new(Directory::new(&status, paths, options.known));
        let notifier =
            Arc::new(Notifier::start(options.event_command, names.clone()).map_err(failure)?);
        // The current thread copies memory; a queue would only cost a hand-over.
        let inline = Members::are_memory(&table);
        let (submitter, reaper) =
            windrow_device::queue::open(table.clone(), &options.queue).map_err(failure)?;
        let has_lanes = submitter.kind() == QueueKind::Uring;
        let submitter =
            (!inline).then(|| Box::new(submitter) as Box<dyn windrow_device::queue::Queue>);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = options.workers.unwrap_or(cores.saturating_sub(1)).max(1);
        let told = notifier.clone();
        let tell = move |notice: Option<Notice>| {
            let Some(notice) = notice else {
                return told.look();
            };
            if matches!(
                notice,
                Notice::MemberFailed { .. }
                    | Notice::Removed { .. }
                    | Notice::ReplacementReady { .. }
            ) {
                poked.poke();
            }
            told.notify(&notice);
        };
        let mut driver = Driver::new(
            machine,
            submitter,
            Members::new(table),
            workers,
            Box::new(tell),
        );
        driver.lanes.wanted = has_lanes;
        let driver = Arc::new(driver);
        let catalogue = Catalogue::new(&status, options.exports);
        let inner = Inner {
            driver,
            uuid: status.pool,
            buffers,
            notifier,
            catalogue: RwLock::new(catalogue),
            names,
            open: exchange::opening(&options.open),
            exchanging: Mutex::default(),
            looks: looks::Looks::default(),
            zeroing: Mutex::default(),
            emptying: emptying::Emptying::default(),
            progress: Mutex::default(),
            setting: Mutex::default(),
            hot_spares,
            spares_wait_until: options
                .spare_patience
                .map(|patience| Instant::now() + patience.min(FOR_EVER)),
            connections: OnceLock::new(),
            threads: Mutex::new(None),
        };
        // Nothing failed at run time, so this is the only report of missing redundancy. (A missing
        // spare would otherwise go unnoticed until it is needed.)
        let is_missing = |slot: &&windrow_engine::MemberStatus| {
            slot.state == "missing"
                || slot.state == "spare" && inner.driver.device(slot.member).is_none()
        };
        let missing = status.members.iter().filter(is_missing);
        missing.for_each(|slot| {
            inner.notifier.notify(&Notice::MemberMissing {
                member: slot.member,
            })
        });
        let pool = Self(Arc::new(inner));
        pool.start_threads(reaper).map_err(failure)?;
        Ok(pool)
    }

    /// Reports the findings of the start, like later events.
    pub fn tell_start(&self, notes: &[String]) {
        notes.iter().for_each(|note| {
            self.0
                .notifier
                .notify(&Notice::StartNote { note: note.clone() })
        });
    }

    fn start_threads(&self, reaper: Reaper) -> std::io::Result<()> {
        let driver = &self.0.driver;
        start_workers(driver)?;
        let service = alarm::start(driver.clone())?;
        let reaper = ReaperThread::start(driver.clone(), reaper)?;
        let hot_spares = self
            .0
            .spares_wait_until
            .map(|until| {
                hot_spares::start(self.0.hot_spares.clone(), Arc::downgrade(&self.0), until)
            })
            .transpose()?;
        *lock(&self.0.threads) = Some(Threads {
            service,
            reaper,
            hot_spares,
        });
        // The first tick gives the engine the time, and lets it name the next one.
        driver.alarm.poke();
        Ok(())
    }

    /// Carries out an administrator's command and waits for its end.
    ///
    /// # Errors
    /// Those of the engine; [`ControlError::Stopped`] once the pool has stopped.
    pub fn control(&self, command: Control) -> Result<ControlReply, ControlError> {
        let result = self.0.driver.control(command);
        self.refresh();
        result
    }

    /// Applies `change` to the present properties. Concurrent changes run one after the other, so
    /// that none undoes another.
    ///
    /// # Errors
    /// Those of `change`; the engine refuses the result; the pool has stopped.
    pub fn change_properties(
        &self,
        change: impl FnOnce(&mut PropertyReport) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let _one = lock(&self.0.setting);
        let mut properties = daemon::report(self)?.properties;
        change(&mut properties)?;
        let set = self.control(Control::SetProperties(properties.to_properties()));
        set.map(drop).map_err(|error| {
            daemon::control_failure("cannot set the properties".to_owned(), &error)
        })
    }

    /// Starts recording the requests of a volume, or of all; `None` while another recording runs.
    pub fn start_recording(&self, volume: Option<VolumeId>) -> Option<Lot> {
        let driver = &self.0.driver;
        driver.recorder.start(volume, driver.clock.now_ns())
    }

    /// Takes the requests recorded since the last take, and ends the recording on request; `None`
    /// if it has ended.
    pub fn take_recorded(&self, token: u64, end: bool) -> Option<Lot> {
        let driver = &self.0.driver;
        driver.recorder.take(token, end, driver.clock.now_ns())
    }

    /// The engine's status; `None` once the engine itself has failed.
    pub fn status(&self) -> Option<PoolStatus> {
        self.0.driver.status()
    }

    /// A volume by name, without the rest of the pool; `None` once the engine itself has failed.
    pub(crate) fn volume(&self, name: &str) -> Option<Option<VolumeReport>> {
        self.0
            .driver
            .volume(name)
            .map(|found| found.as_ref().map(VolumeReport::from))
    }

    /// The pool's identifier; known also when the engine has failed.
    pub fn uuid(&self) -> Uuid {
        self.0.uuid
    }

    /// True if nothing may be written.
    pub(crate) fn is_read_only(&self) -> bool {
        self.0.open.read_only
    }

    /// Report on the whole pool.
    pub fn report(&self) -> Option<PoolReport> {
        let status = self.status()?;
        let latency = self.0.driver.sessions.latencies().summary();
        let awaited = self.0.spares_wait_until.map(|until| {
            (
                exchange::vacancies(&status, true),
                until.saturating_duration_since(Instant::now()),
            )
        });
        self.0.names.refresh(&status);
        let mut report = PoolReport {
            dropped_events: self.0.notifier.dropped(),
            exports: self.exports(),
            nbd: self.0.connections.get().and_then(|look| look()),
            ..PoolReport::new(status, latency, &self.0.names.places(), self.stop_reason())
        };
        if let Some((vacancies, left)) = awaited {
            let may_be_replaced =
                |member: &u8| vacancies.iter().any(|(vacant, _)| vacant.0 == *member);
            let waited_for = report
                .members
                .iter_mut()
                .filter(|member| member.state == "missing" && may_be_replaced(&member.member));
            waited_for.for_each(|member| member.spare_in_seconds = Some(left.as_secs()));
        }
        lock(&self.0.progress).keep(&mut report.scrub);
        Some(report)
    }

    /// Last path of each member's device, by member; empty where unknown.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.0
            .names
            .places()
            .into_iter()
            .map(|place| place.path)
            .collect()
    }

    /// A member with its path, for messages.
    pub(crate) fn member_text(&self, member: MemberId) -> String {
        crate::wording::member_text(member, &self.0.names)
    }

    /// Name of the pool.
    pub(crate) fn name(&self) -> &str {
        &self.0.names.name
    }

    /// Mark of the device that is open for a member.
    pub(crate) fn device_mark(&self, member: MemberId) -> Option<crate::arrivals::Mark> {
        crate::arrivals::Mark::of_open(self.0.driver.device(member)?.raw_fd()?)
    }

    /// Members with open devices. Does not ask the engine, which may be unresponsive.
    pub(crate) fn open_members(&self) -> Vec<OpenMember> {
        let open = |(slot, place): (u8, MemberPlace)| {
            let identity = self.device_mark(MemberId(slot))?.device();
            Some(OpenMember {
                member: slot,
                uuid: place.uuid,
                identity,
            })
        };
        (0..).zip(self.0.names.places()).filter_map(open).collect()
    }

    /// Sets the source of the front-end's connection report. The first one counts.
    pub fn show_connections(
        &self,
        look: impl Fn() -> Option<ConnectionReport> + Send + Sync + 'static,
    ) {
        self.0.connections.get_or_init(|| Box::new(look));
    }

    /// Progress of zeroing a device that was in this pool before: bytes done, bytes in all.
    pub fn zeroing(&self) -> Option<(u64, u64)> {
        *lock(&self.0.zeroing)
    }

    /// Reason that the pool stopped; `None` while it runs.
    pub fn stop_reason(&self) -> Option<String> {
        self.0.driver.stop_reason()
    }

    /// Reason that the driver or the engine stopped; `None` while the pool runs.
    pub fn why_stopped(&self) -> Option<String> {
        self.stop_reason().or_else(|| self.status()?.stop_reason)
    }

    /// Adds an export; returns the table to be stored.
    ///
    /// # Errors
    /// The name is taken or there is no such volume.
    pub fn add_export(
        &self,
        name: &str,
        export: NamedExport,
        default: bool,
    ) -> Result<ExportTable, Failure> {
        self.change_exports(|table, volumes| table.add(name, export, default, volumes))
    }

    /// Removes an export; open connections stay. Returns the table to be stored.
    ///
    /// # Errors
    /// There is no such export.
    pub fn remove_export(&self, name: &str) -> Result<ExportTable, Failure> {
        self.change_exports(|table, volumes| table.remove(name, volumes))
    }

    /// Makes the export of a volume's own name the default; returns the table to be stored.
    ///
    /// # Errors
    /// There is no such volume, or its name is that of another volume's export.
    pub fn set_default_volume(&self, name: &str) -> Result<ExportTable, Failure> {
        self.change_exports(|table, volumes| table.set_default_volume(name, volumes))
    }

    /// Takes the default away from an export, which stays; returns the table to be stored.
    ///
    /// # Errors
    /// It is not the default.
    pub fn remove_default(&self, name: &str) -> Result<ExportTable, Failure> {
        self.change_exports(|table, _| table.remove_default(name))
    }

    /// Removes the export settings of a deleted volume; returns the table to be stored.
    pub fn forget_volume(&self, volume: VolumeId, name: &str) -> ExportTable {
        let mut catalogue = self
            .0
            .catalogue
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        catalogue.change_table(|table| table.forget_volume(volume, name))
    }

    /// Renames a volume in the exports, with its settings; returns the table to be stored.
    pub(crate) fn rename_in_exports(
        &self,
        volume: VolumeId,
        name: &str,
        new_name: &str,
    ) -> ExportTable {
        let mut catalogue = self
            .0
            .catalogue
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let table = catalogue.change_table(|table| table.rename_volume(volume, name, new_name));
        // Under the catalogue's lock, as clients enter: otherwise `export rm` of the new name would
        // miss them, and a new volume of the old name would have them.
        self.0
            .driver
            .sessions
            .all()
            .iter()
            .for_each(|session| session.rename_export(volume, name, new_name));
        table
    }

    /// Differences from "every volume under its own name".
    pub fn export_table(&self) -> ExportTable {
        self.catalogue().table().clone()
    }

    /// Reverts changes of exports.
    pub(crate) fn put_export_table(&self, table: ExportTable) {
        self.0
            .catalogue
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .change_table(|kept| *kept = table);
    }

    fn change_exports(
        &self,
        change: impl FnOnce(&mut ExportTable, &[VolumeView<'_>]) -> Result<(), Failure>,
    ) -> Result<ExportTable, Failure> {
        let mut catalogue = self
            .0
            .catalogue
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut table = catalogue.table().clone();
        change(&mut table, &catalogue.views())?;
        Ok(catalogue.change_table(|kept| *kept = table))
    }

    fn catalogue(&self) -> RwLockReadGuard<'_, Catalogue> {
        self.0
            .catalogue
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes over the volumes as the engine knows them.
    fn refresh(&self) {
        if let Some(status) = self.status() {
            self.0.names.refresh(&status);
            self.0
                .catalogue
                .write()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .take_over(&status);
        }
    }

    /// Drains the engine, writes a checkpoint, with `export` releases the pool for other hosts, and
    /// ends the threads. Called when front-ends have drained; later requests are answered with
    /// `Stopped`.
    ///
    /// # Errors
    /// The engine could not finish cleanly. Nothing acknowledged and flushed is lost by that.
    pub fn shutdown(&self, export: bool) -> Result<(), ControlError> {
        let result = self.end(export);
        self.let_go();
        self.0.close();
        result
    }

    /// The first step of [`Pool::shutdown`]: the pool has ended, its devices are open. Called once.
    pub(crate) fn end(&self, export: bool) -> Result<(), ControlError> {
        self.0
            .driver
            .control(Control::Shutdown { export })
            .map(|_| ())
    }

    /// The second step: closes the devices, each as soon as its commands are answered. A hanging
    /// device keeps this process alive: the kernel ends no thread with I/O in flight. The other
    /// devices must not stay locked for the next process. Called when the pool is no longer used
    /// here.
    pub fn let_go(&self) {
        let driver = &self.0.driver;
        let hangs = |status: &PoolStatus| {
            status
                .members
                .iter()
                .filter(|m| m.unanswered > 0 || m.hangs_ms > 0)
                .map(|m| m.member)
                .collect::<Vec<_>>()
        };
        let hangs = driver
            .status()
            .map(|status| hangs(&status))
            .unwrap_or_default();
        driver.close();
        let end = Instant::now() + LETTING_GO;
        loop {
            let open = (0..MAX_MEMBERS as u8)
                .map(MemberId)
                .filter(|slot| driver.device(*slot).is_some());
            let left: Vec<MemberId> = open
                .filter(|slot| driver.exchange(*slot, None).is_err())
                .collect();
            if left.iter().all(|slot| hangs.contains(slot)) || Instant::now() >= end {
                left.iter().for_each(|slot| {
                    tracing::warn!(
                        "pool '{}': it has ended, but {} stays open until its device has answered",
                        self.0.names.name,
                        self.member_text(*slot)
                    )
                });
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Inner {
    /// Ends all threads; requests in flight are answered with `Stopped`.
    fn close(&self) {
        let Some(threads) = lock(&self.threads).take() else {
            return;
        };
        self.driver.close();
        self.driver.alarm.close();
        self.hot_spares.close();
        if threads.service.thread().id() != std::thread::current().id() {
            drop(threads.service.join());
        }
        threads.reaper.close();
        if let Some(hot_spares) = threads
            .hot_spares
            .filter(|hot_spares| hot_spares.thread().id() != std::thread::current().id())
        {
            drop(hot_spares.join());
        }
        self.driver.workers.close();
        self.notifier.close();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl ExportSource for Pool {
    fn list(&self) -> Vec<ExportInfo> {
        self.catalogue().infos().collect()
    }

    fn open(&self, name: &str, sink: Arc<dyn Sink>) -> Result<Box<dyn Session>, RequestError> {
        self.open_session(name, None, sink)
    }

    fn enter(
        &self,
        name: &str,
        peer: &str,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Session>, RequestError> {
        self.open_session(name, Some(peer), sink)
    }

    fn buffers(&self) -> &BufPool {
        &self.0.buffers
    }
}

impl Pool {
    /// `peer`: the client of the session.
    fn open_session(
        &self,
        name: &str,
        peer: Option<&str>,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Session>, RequestError> {
        if self.0.driver.is_stopped() {
            return Err(RequestError::Stopped);
        }
        // Held until the session is in the table: either a command that bars the export sees the
        // session, or the session sees the bar.
        let catalogue = self.catalogue();
        let info = catalogue.info(name).ok_or(RequestError::NoVolume)?;
        let client = Client {
            peer: peer.unwrap_or_default().to_owned(),
            export: info.name.clone(),
            volume: info.volume,
            by_default: name.is_empty(),
            since_unix_s: unix_now(),
        };
        if catalogue.is_barred(&client) {
            return Err(RequestError::Stopped);
        }
        let state = self.0.driver.sessions.open_for(sink, peer.map(|_| client));
        Ok(Box::new(PoolSession {
            pool: self.clone(),
            state,
            info,
            attendance: OnceLock::new(),
        }))
    }
}

/// A connection's session with a volume.
struct PoolSession {
    pool: Pool,
    state: Arc<SessionState>,
    /// Fixed when the session was opened, except the size, which is looked up.
    info: ExportInfo,
    attendance: OnceLock<Option<Attendance>>,
}

impl Session for PoolSession {
    fn submit(&self, requests: &mut Vec<Request>, ready: &mut Vec<Completion>) {
        // A session is bound to one volume, whatever a front-end sends.
        for request in requests.iter_mut() {
            request.volume = self.info.volume;
        }
        if self.info.read_only {
            refuse_changes(requests, ready);
        }
        let driver = &self.pool.0.driver;
        match self.attendance() {
            Some(attendance) => attendance.submit(driver, &self.state, requests, ready),
            None => driver.submit(
                requests,
                Own {
                    session: &self.state,
                    ready,
                    lane: None,
                },
            ),
        }
    }

    fn info(&self) -> ExportInfo {
        let mut info = self.info.clone();
        let catalogue = self.pool.catalogue();
        // A deleted volume has no bytes.
        let volume = catalogue.volume(info.volume);
        info.size_bytes = volume.map_or(0, |volume| volume.size_bytes);
        info.read_only |= volume.is_some_and(|volume| volume.read_only);
        info
    }

    fn attend(&self) -> Option<BorrowedFd<'_>> {
        self.attendance
            .get_or_init(|| Attendance::open(&self.pool.0.driver))
            .as_ref()
            .and_then(Attendance::fd)
    }

    fn progress(&self, ready: &mut Vec<Completion>) -> bool {
        self.attendance()
            .is_some_and(|attendance| attendance.progress(&self.pool.0.driver, &self.state, ready))
    }
}

impl PoolSession {
    fn attendance(&self) -> Option<&Attendance> {
        self.attendance.get().and_then(Option::as_ref)
    }
}

impl Drop for PoolSession {
    fn drop(&mut self) {
        match self.attendance() {
            Some(attendance) => attendance.finish(&self.pool.0.driver, &self.state),
            None => self.pool.0.driver.sessions.close(&self.state),
        }
    }
}

/// Refuses requests that would change a read-only export.
fn refuse_changes(requests: &mut Vec<Request>, ready: &mut Vec<Completion>) {
    requests.retain(|request| {
        let changes = matches!(
            request.op,
            Op::Write { .. } | Op::Trim { .. } | Op::WriteZeroes { .. }
        );
        if changes {
            ready.push(Completion {
                id: request.id,
                result: Err(RequestError::ReadOnly),
                lsns: None,
            });
        }
        !changes
    });
}

#[cfg(test)]
mod tests;
