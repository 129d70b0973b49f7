//! The harness of engine stories: memory members, an engine on them, and events in a written order.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod given_again;
pub mod given_up;
pub mod hooked;
pub mod numbers;

use std::ops::Range;
use windrow_engine::*;
use windrow_format::batch::{BatchHeader, decode_header};
use windrow_format::superblock::{
    FORMAT_VERSION, LABEL_BYTES, LABEL_OFFSET, Label, Properties, SLOT_BYTES, SLOT_COUNT,
    SLOT_OFFSET, SLOT_STRIDE, Superblock,
};
use windrow_geometry::{Column, Redundancy, ZoneMap};
use windrow_io::*;
use windrow_types::{BLOCK_BYTES, MemberId, SegmentId, Uuid, VolumeId};

/// Members.
#[derive(Clone)]
pub struct Memory {
    pub data: Vec<Vec<u8>>,
    pub present: Vec<bool>,
    /// Members that fail every write.
    pub failing: Vec<bool>,
    /// Those of them that vanish with the first failed write.
    pub vanishing: Vec<bool>,
    /// Number of synchronous writes after which every further one fails.
    pub writes_left: Option<u64>,
    /// Blocks that are unreadable until they are written: member and byte offset.
    pub bad: Vec<(usize, usize)>,
    /// Bytes written to each member and flushes of it, as the member counts them.
    pub written: Vec<u64>,
    pub flushed: Vec<u64>,
}

impl MemberIo for Memory {
    fn member_count(&self) -> usize {
        self.data.len()
    }
    fn is_present(&self, member: MemberId) -> bool {
        self.present[member.index()]
    }
    fn size(&self, member: MemberId) -> u64 {
        self.data[member.index()].len() as u64
    }
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MemberError> {
        let range = offset as usize..offset as usize + buf.len();
        if let Some((_, at)) = self
            .bad
            .iter()
            .find(|(m, at)| *m == member.index() && range.contains(at))
        {
            return Err(MemberError {
                member,
                kind: MemberErrorKind::Media,
                offset: *at as u64,
                code: 5,
            });
        }
        buf.copy_from_slice(&self.data[member.index()][range]);
        Ok(())
    }
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MemberError> {
        let over = self
            .writes_left
            .as_mut()
            .is_some_and(|left| left.checked_sub(1).map(|less| *left = less).is_none());
        if self.failing[member.index()] || over {
            self.present[member.index()] &= !self.vanishing[member.index()];
            return Err(MemberError {
                member,
                kind: MemberErrorKind::Media,
                offset,
                code: 5,
            });
        }
        let range = offset as usize..offset as usize + buf.len();
        self.bad
            .retain(|(m, at)| *m != member.index() || !range.contains(at));
        self.data[member.index()][range].copy_from_slice(buf);
        self.written[member.index()] += buf.len() as u64;
        Ok(())
    }
    fn flush(&mut self, member: MemberId) -> Result<(), MemberError> {
        self.flushed[member.index()] += 1;
        Ok(())
    }
}

impl Memory {
    /// Adds a device of this size in bytes; returns its slot.
    pub fn add(&mut self, bytes: usize) -> usize {
        self.data.push(vec![0; bytes]);
        self.present.push(true);
        self.failing.push(false);
        self.vanishing.push(false);
        self.written.push(0);
        self.flushed.push(0);
        self.data.len() - 1
    }

    /// The newest superblock.
    pub fn superblock(&self) -> Superblock {
        (0..self.data.len())
            .filter_map(|member| self.newest_on(member))
            .max_by_key(|s| s.generation)
            .expect("a superblock")
    }

    /// Newest superblock on a member.
    pub fn superblock_of(&self, member: usize) -> Superblock {
        self.newest_on(member).expect("a superblock")
    }

    fn newest_on(&self, member: usize) -> Option<Superblock> {
        let slots = (0..SLOT_COUNT).map(|slot| {
            &self.data[member][(SLOT_OFFSET + slot * SLOT_STRIDE) as usize..][..SLOT_BYTES]
        });
        slots
            .filter_map(|bytes| Superblock::decode(bytes).ok())
            .max_by_key(|s| s.generation)
    }

    /// Addresses of the blocks of some rows: member and byte offset, on every member of the
    /// segment.
    pub fn blocks(&self, segment: SegmentId, rows: Range<u32>) -> Vec<(usize, usize)> {
        let zones = ZoneMap::new(self.superblock().zones);
        let location = zones.locate(segment);
        let address = |row, column| {
            let (member, offset) = location.address(row, Column(column));
            (member.index(), offset as usize)
        };
        rows.flat_map(|row| (0..location.shape().width).map(move |column| address(row, column)))
            .collect()
    }

    /// Overwrites rows of a segment on every member of it.
    pub fn overwrite(&mut self, segment: SegmentId, rows: Range<u32>, byte: u8) {
        for (member, at) in self.blocks(segment, rows) {
            self.data[member][at..at + BLOCK_BYTES as usize].fill(byte);
        }
    }

    /// Every batch header in the segments, with segment and first row: in the log, of previous
    /// incarnations, or torn.
    pub fn headers(&self) -> Vec<(SegmentId, u32, BatchHeader)> {
        let superblock = self.superblock();
        let zones = ZoneMap::new(superblock.zones.clone());
        let mut found = Vec::new();
        for segment in zones.segments() {
            let location = zones.locate(segment);
            for row in 0..location.shape().rows {
                let (member, offset) = location.address(row, Column(0));
                let block = &self.data[member.index()][offset as usize..][..BLOCK_BYTES as usize];
                found.extend(
                    decode_header(block, &superblock.pool, segment, row)
                        .ok()
                        .map(|frame| (segment, row, frame.header)),
                );
            }
        }
        found
    }
}

pub const PROPERTIES: Properties = Properties {
    spare_per_mille: 100,
    seal_age_ms: 20,
    victim_policy: 0,
    discard: false,
    ..Properties::DEFAULT
};

pub struct Machine {
    pub memory: Memory,
    pub engine: Engine,
    pub events: Vec<Event>,
    pub out: Outbox,
    /// Commands held instead of executed.
    pub held: Option<Vec<MemberCommand>>,
    /// Jobs that recompress moved blocks, held instead of run.
    pub held_repacks: Option<Vec<Job>>,
    /// Members that do not answer reads, those that answer nothing, and the commands sent to them.
    pub stalled: Vec<usize>,
    pub mute: Vec<usize>,
    pub late: Vec<MemberCommand>,
    pub completions: Vec<Completion>,
    pub control: Vec<ControlCompletion>,
    pub now_ns: u64,
}

impl Machine {
    pub fn new(members: usize, mib: usize, spare_per_mille: u16) -> Self {
        Self::with(Redundancy::Single, members, mib, spare_per_mille)
    }

    pub fn with(redundancy: Redundancy, members: usize, mib: usize, spare_per_mille: u16) -> Self {
        Self::made(redundancy, members, mib, spare_per_mille, None)
    }

    /// With a journal of this size on each member.
    pub fn journalled(redundancy: Redundancy, members: usize, mib: usize, bytes_each: u64) -> Self {
        Self::journalled_with(
            redundancy,
            members,
            mib,
            JournalSpec::internal(Some(bytes_each), 512),
        )
    }

    /// With this journal.
    pub fn journalled_with(
        redundancy: Redundancy,
        members: usize,
        mib: usize,
        journal: JournalSpec,
    ) -> Self {
        Self::made(redundancy, members, mib, 100, Some(journal))
    }

    /// With an internal journal, and one on dedicated devices, of 4 MiB each.
    pub fn with_journal_devices(
        redundancy: Redundancy,
        members: usize,
        mib: usize,
        devices: usize,
        power_safe: bool,
    ) -> Self {
        let devices = (0..devices)
            .map(|i| (Uuid([0xd0 + i as u8; 16]), 4 << 20))
            .collect();
        Self::made(
            redundancy,
            members,
            mib,
            100,
            Some(JournalSpec {
                devices,
                power_safe,
                ..JournalSpec::internal(Some(1 << 20), 512)
            }),
        )
    }

    /// With one journal device, and no other journal.
    pub fn with_journal_device_only(redundancy: Redundancy, members: usize, mib: usize) -> Self {
        let devices = vec![(Uuid([0xd0; 16]), 4 << 20)];
        Self::made(
            redundancy,
            members,
            mib,
            100,
            Some(JournalSpec {
                devices,
                ..JournalSpec::internal(Some(0), 512)
            }),
        )
    }

    /// With a journal of 1 MiB on each member, and chunks and segments of these numbers of rows:
    /// those of a large pool.
    pub fn with_rows(
        redundancy: Redundancy,
        members: usize,
        mib: usize,
        chunk: u32,
        segment: u32,
    ) -> Self {
        Self::made_of(
            redundancy,
            members,
            mib,
            100,
            Some(JournalSpec::internal(Some(1 << 20), 512)),
            [Some(chunk), Some(segment)],
        )
    }

    /// The same with a journal on a dedicated device of 4 MiB only.
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn with_rows_and_device(
        redundancy: Redundancy,
        members: usize,
        mib: usize,
        chunk: u32,
        segment: u32,
    ) -> Self {
        let devices = vec![(Uuid([0xd0; 16]), 4 << 20)];
        let journal = JournalSpec {
            devices,
            ..JournalSpec::internal(Some(0), 512)
        };
        Self::made_of(
            redundancy,
            members,
            mib,
            100,
            Some(journal),
            [Some(chunk), Some(segment)],
        )
    }

    /// The same without a journal.
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn with_rows_only(
        redundancy: Redundancy,
        members: usize,
        mib: usize,
        chunk: u32,
        segment: u32,
    ) -> Self {
        Self::made_of(
            redundancy,
            members,
            mib,
            100,
            None,
            [Some(chunk), Some(segment)],
        )
    }

    /// The same with this spare factor.
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn with_rows_and_spare(
        redundancy: Redundancy,
        members: usize,
        mib: usize,
        rows: [u32; 2],
        spare_per_mille: u16,
    ) -> Self {
        Self::made_of(
            redundancy,
            members,
            mib,
            spare_per_mille,
            None,
            rows.map(Some),
        )
    }

    fn made(
        redundancy: Redundancy,
        members: usize,
        mib: usize,
        spare_per_mille: u16,
        journal: Option<JournalSpec>,
    ) -> Self {
        Self::made_of(
            redundancy,
            members,
            mib,
            spare_per_mille,
            journal,
            [None; 2],
        )
    }

    fn made_of(
        redundancy: Redundancy,
        members: usize,
        mib: usize,
        spare_per_mille: u16,
        journal: Option<JournalSpec>,
        rows: [Option<u32>; 2],
    ) -> Self {
        let devices: Vec<usize> = journal
            .iter()
            .flat_map(|journal| &journal.devices)
            .map(|device| device.1 as usize)
            .collect();
        let count = members + devices.len();
        let spec = PoolSpec {
            name: "story".into(),
            redundancy,
            chunk_rows: rows[0],
            segment_rows: rows[1],
            align_bytes: 4096,
            pool: Uuid([9; 16]),
            members: (0..members)
                .map(|i| (Uuid([i as u8 + 1; 16]), (mib as u64) << 20))
                .collect(),
            created_unix_s: 0,
            journal,
            properties: Properties {
                spare_per_mille,
                ..PROPERTIES
            },
        };
        let mut memory = Memory {
            data: (0..members)
                .map(|_| mib << 20)
                .chain(devices)
                .map(|bytes| vec![0; bytes])
                .collect(),
            present: vec![true; count],
            failing: vec![false; count],
            vanishing: vec![false; count],
            writes_left: None,
            bad: Vec::new(),
            written: vec![0; count],
            flushed: vec![0; count],
        };
        Engine::format(&mut memory, &spec).expect("format");
        Self::open(memory)
    }

    /// Options for opening the pool. Records are not compressed: their sizes are those of their
    /// content.
    pub fn options() -> OpenOptions {
        let limits = Limits {
            compresses_records: false,
            ..Limits::default()
        };
        OpenOptions {
            host: Uuid([1; 16]),
            read_only: false,
            force: false,
            discard_journal: false,
            limits,
        }
    }

    pub fn open(memory: Memory) -> Self {
        Self::open_with(memory, &Self::options())
    }

    pub fn open_with(mut memory: Memory, options: &OpenOptions) -> Self {
        let (engine, _) = Engine::open(&mut memory, BufPool::new(64 << 20), options).expect("open");
        Self {
            memory,
            engine,
            events: Vec::new(),
            out: Outbox::default(),
            held: None,
            held_repacks: None,
            stalled: Vec::new(),
            mute: Vec::new(),
            late: Vec::new(),
            completions: Vec::new(),
            control: Vec::new(),
            now_ns: 1,
        }
    }

    /// Power loss: only the content of the members is left.
    pub fn crash(self) -> Self {
        Self::open(self.memory)
    }

    /// Silently changes all bytes of a member except labels and superblocks.
    pub fn garble(&mut self, member: usize) {
        let data_starts = self.engine.status().plan.zones[0].start as usize;
        self.memory.data[member][data_starts..]
            .chunks_exact_mut(8)
            .enumerate()
            .for_each(|(at, word)| {
                // In another way on each member: equal changes cancel each other out in parity.
                word.iter_mut().for_each(|byte| {
                    *byte ^= (0x5a ^ (at as u8 | 1)).wrapping_mul(2 * member as u8 + 1)
                });
            });
    }

    pub fn carry_out(&mut self, command: MemberCommand) {
        let MemberCommand { member, tag, op } = command;
        let (buf, result) = match op {
            MemberOp::Read { offset, mut buf } => {
                let result = self.memory.read(member, offset, &mut buf);
                (Some(buf), result)
            }
            MemberOp::Write { offset, buf } => {
                let result = self.memory.write(member, offset, &buf);
                (Some(buf), result)
            }
            MemberOp::Flush => (None, Ok(())),
            // Discarded blocks read as arbitrary bytes.
            MemberOp::Discard { offset, length } => {
                self.memory.data[member.index()][offset as usize..(offset + length) as usize]
                    .fill(0xdd);
                (None, Ok(()))
            }
        };
        self.events.push(Event::Member(MemberDone {
            member,
            tag,
            buf,
            result,
        }));
    }

    /// Passes pending events to the engine once, and executes its effects.
    pub fn turn(&mut self) {
        self.engine.apply(&mut self.events, &mut self.out);
        assert_eq!(self.engine.self_check(), Ok(()));
        for command in std::mem::take(&mut self.out.commands) {
            match &mut self.held {
                Some(held) => held.push(command),
                None if self.stalled.contains(&command.member.index())
                    && matches!(command.op, MemberOp::Read { .. }) =>
                {
                    self.late.push(command)
                }
                None if self.mute.contains(&command.member.index()) => self.late.push(command),
                None => self.carry_out(command),
            }
        }
        for mut job in std::mem::take(&mut self.out.jobs) {
            if let Some(held) = self
                .held_repacks
                .as_mut()
                .filter(|_| format!("{job:?}").starts_with("Job(Repack"))
            {
                held.push(job);
                continue;
            }
            job.run();
            self.events.push(Event::Job(job));
        }
        self.completions.append(&mut self.out.completions);
        self.control.append(&mut self.out.control);
    }

    pub fn settle(&mut self) {
        loop {
            while !self.events.is_empty() {
                self.turn();
            }
            // A wake that is due now is the engine's own request to continue.
            if self
                .out
                .wake_at_ns
                .take_if(|at| *at <= self.now_ns)
                .is_none()
            {
                return;
            }
            self.events.push(Event::Tick(self.now_ns));
        }
    }

    /// Lets time pass until `count` requests are answered; false if there is no progress any more.
    pub fn wait_for(&mut self, count: usize) -> bool {
        for _ in 0..400 {
            self.settle();
            if self.completions.len() >= count {
                return true;
            }
            self.now_ns += 50_000_000;
            self.events.push(Event::Tick(self.now_ns));
        }
        false
    }

    pub fn request(&mut self, volume: VolumeId, op: Op) {
        self.events.push(Event::Request(Request {
            id: RequestId(1),
            volume,
            op,
        }));
    }

    pub fn write(&mut self, volume: VolumeId, lba: u64, byte: u8) {
        let mut bytes = vec![byte; 4096];
        bytes[0] = !byte;
        self.request(
            volume,
            Op::Write {
                offset: lba * 4096,
                data: Payload::copy_of(&bytes),
                fua: false,
            },
        );
        self.settle();
    }

    pub fn flush(&mut self, volume: VolumeId) {
        self.request(volume, Op::Flush);
        self.settle();
    }

    /// Executes held commands, and everything that follows.
    pub fn release(&mut self) {
        for command in self.held.take().unwrap_or_default() {
            self.carry_out(command);
        }
        self.settle();
    }

    /// Result of a read of a whole range.
    pub fn read(&mut self, volume: VolumeId, offset: u64, length: u32) -> Vec<u8> {
        self.completions.clear();
        self.request(volume, Op::Read { offset, length });
        self.settle();
        match self.completions.pop().map(|c| c.result) {
            Some(Ok(Reply::Data(parts))) => {
                parts.iter().flat_map(|part| part.iter().copied()).collect()
            }
            other => panic!("read answered {other:?}"),
        }
    }

    /// True if a read of the block fails.
    pub fn is_lost(&mut self, volume: VolumeId, lba: u64) -> bool {
        self.completions.clear();
        self.request(
            volume,
            Op::Read {
                offset: lba * 4096,
                length: 4096,
            },
        );
        self.settle();
        matches!(
            self.completions.pop().map(|c| c.result),
            Some(Err(RequestError::Io))
        )
    }

    pub fn byte(&mut self, volume: VolumeId, lba: u64) -> u8 {
        self.request(
            volume,
            Op::Read {
                offset: lba * 4096,
                length: 4096,
            },
        );
        self.settle();
        match self.completions.pop().map(|c| c.result) {
            Some(Ok(Reply::Data(parts))) => parts[0][1],
            other => panic!("read answered {other:?}"),
        }
    }

    pub fn command(&mut self, command: Control) -> Option<Result<ControlReply, ControlError>> {
        self.events.push(Event::Control(ControlRequest {
            id: ControlId(1),
            command,
        }));
        self.settle();
        self.control.pop().map(|c| c.result)
    }

    /// Adds a spare to the pool.
    pub fn add_spare(&mut self, mib: usize) {
        let slot = self.memory.add(mib << 20) as u8;
        let (status, member_uuid) = (self.engine.status(), Uuid([slot + 100; 16]));
        // The host labels a device before the engine learns of it.
        let label = Label {
            version: FORMAT_VERSION,
            pool: status.pool,
            pool_name: status.name,
            member_uuid,
            member: MemberId(slot),
        };
        self.memory.data[usize::from(slot)][LABEL_OFFSET as usize..][..LABEL_BYTES]
            .copy_from_slice(&label.encode());
        let change = MemberChange::AddSpare {
            uuid: member_uuid,
            size_bytes: (mib as u64) << 20,
        };
        assert_eq!(
            self.command(Control::Member {
                member: MemberId(slot),
                change
            }),
            Some(Ok(ControlReply::Done))
        );
    }

    pub fn volume(&mut self, size_bytes: u64) -> VolumeId {
        match self.command(Control::VolumeCreate {
            name: "v".into(),
            size_bytes,
        }) {
            Some(Ok(ControlReply::Volume(volume))) => volume,
            other => panic!("volume create answered {other:?}"),
        }
    }
}

/// Writes one round of these blocks, and flushes.
pub fn write(machine: &mut Machine, volume: VolumeId, lbas: std::ops::Range<u64>, round: u64) {
    lbas.for_each(|lba| machine.write(volume, lba, (lba * 3 + round) as u8));
    machine.flush(volume);
}

/// Checks that these blocks hold that round.
pub fn verify(machine: &mut Machine, volume: VolumeId, lbas: std::ops::Range<u64>, round: u64) {
    lbas.for_each(|lba| {
        assert_eq!(
            machine.byte(volume, lba),
            (lba * 3 + round) as u8,
            "block {lba}"
        )
    });
}

/// Lets time pass.
pub fn pass(machine: &mut Machine, times: usize) {
    for _ in 0..times {
        machine.now_ns += 30_000_000;
        machine.events.push(Event::Tick(machine.now_ns));
        machine.settle();
    }
}

/// Reason that a change of a member was refused.
pub fn why(answer: Option<Result<ControlReply, ControlError>>) -> String {
    match answer {
        Some(Err(error @ ControlError::Member { .. })) => error.to_string(),
        other => panic!("answered {other:?}"),
    }
}

pub fn state(machine: &Machine, member: usize) -> &'static str {
    machine.engine.status().members[member].state
}
