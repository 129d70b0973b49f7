//! Formats of published traces and of simulators.

use super::fields::{Fields, hexadecimal, show};
use crate::devices::Devices;
use crate::request::{Kind, Request};

const SECTOR: u64 = 512;

type Line = Result<Request, String>;

/// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`. A host has several disks, so both
/// name the device.
pub fn msr(mut fields: Fields<'_>, devices: &mut Devices) -> Line {
    let time = fields.scaled("timestamp", 100)?;
    let (host, disk) = (fields.need("host")?, fields.number("disk")?);
    let kind = fields.kind("type")?;
    let (offset, length) = (fields.number("offset")?, fields.number("size")?);
    fields.number("response time")?;
    let mut name = host.to_vec();
    name.extend_from_slice(format!(".{disk}").as_bytes());
    Ok(Request::new(
        kind,
        devices.number(&name)?,
        offset,
        length,
        time,
    ))
}

/// `device_id,opcode,offset,length,timestamp`.
pub fn alibaba(mut fields: Fields<'_>, devices: &mut Devices) -> Line {
    let device = fields.need("device")?;
    let kind = fields.kind("opcode")?;
    let (offset, length) = (fields.number("offset")?, fields.number("length")?);
    let time = fields.scaled("timestamp", 1000)?;
    Ok(Request::new(
        kind,
        devices.number(device)?,
        offset,
        length,
        time,
    ))
}

/// `Timestamp,Offset,Size,IOType,VolumeID`.
pub fn tencent(mut fields: Fields<'_>, devices: &mut Devices) -> Line {
    let time = fields.time("timestamp", 1_000_000_000)?;
    let (offset, length) = (
        fields.scaled("offset", SECTOR)?,
        fields.scaled("size", SECTOR)?,
    );
    let kind = match fields.need("type")? {
        b"0" => Kind::Read,
        b"1" => Kind::Write,
        other => return Err(format!("the type is '{}'", show(other))),
    };
    let device = fields.need("volume")?;
    if !fields.ended() {
        return Err("it has more than five fields".to_owned());
    }
    Ok(Request::new(
        kind,
        devices.number(device)?,
        offset,
        length,
        time,
    ))
}

/// `ASU,LBA,Size,Opcode,Timestamp` and user-defined fields.
pub fn spc(mut fields: Fields<'_>, devices: &mut Devices) -> Line {
    let device = fields.need("unit")?;
    let offset = fields.scaled("block", SECTOR)?;
    let length = fields.number("size")?;
    let kind = match fields.need("opcode")? {
        b"r" | b"R" => Kind::Read,
        b"w" | b"W" => Kind::Write,
        other => return Err(format!("the opcode is '{}'", show(other))),
    };
    let time = fields.time("timestamp", 1_000_000_000)?;
    Ok(Request::new(
        kind,
        devices.number(device)?,
        offset,
        length,
        time,
    ))
}

/// `op,offset,length,us[,device]`; a durable write is `WF`.
pub fn csv(mut fields: Fields<'_>, devices: &mut Devices) -> Line {
    let word = fields.need("operation")?;
    let (kind, fua) = if word == b"WF" {
        (Kind::Write, true)
    } else {
        (
            super::fields::kind(word)
                .ok_or_else(|| format!("the operation is '{}'", show(word)))?,
            false,
        )
    };
    let (offset, length) = (fields.number("offset")?, fields.number("length")?);
    let time = fields.time("time", 1000)?;
    let device = devices.number(
        fields
            .next()
            .filter(|name| !name.is_empty())
            .unwrap_or(b"0"),
    )?;
    Ok(Request {
        fua,
        ..Request::new(kind, device, offset, length, time)
    })
}

/// Milliseconds with a fraction, device, sector, sectors, flags.
pub fn disksim(mut fields: Fields<'_>, devices: &mut Devices) -> Line {
    let written = fields.need("time")?;
    if !written.contains(&b'.') {
        return Err("the time has no fraction".to_owned());
    }
    let time = super::fields::decimal(written, 1_000_000)
        .ok_or_else(|| format!("the time is '{}'", show(written)))?;
    let device = fields.need("device")?;
    let (offset, length) = (
        fields.scaled("sector", SECTOR)?,
        fields.scaled("size", SECTOR)?,
    );
    let flags = fields.need("flags")?;
    let flags = hexadecimal(flags).ok_or_else(|| format!("the flags are '{}'", show(flags)))?;
    let kind = if flags & 1 == 1 {
        Kind::Read
    } else {
        Kind::Write
    };
    super::fields::number(device).ok_or_else(|| format!("the device is '{}'", show(device)))?;
    Ok(Request::new(
        kind,
        devices.number(device)?,
        offset,
        length,
        time,
    ))
}

/// Nanoseconds, device, sector, sectors, 0 for a write and 1 for a read.
pub fn mqsim(mut fields: Fields<'_>, devices: &mut Devices) -> Line {
    let time = fields.number("time")?;
    let device = fields.need("device")?;
    super::fields::number(device).ok_or_else(|| format!("the device is '{}'", show(device)))?;
    let (offset, length) = (
        fields.scaled("sector", SECTOR)?,
        fields.scaled("size", SECTOR)?,
    );
    let kind = match fields.need("type")? {
        b"0" => Kind::Write,
        b"1" => Kind::Read,
        other => return Err(format!("the type is '{}'", show(other))),
    };
    if !fields.ended() {
        return Err("it has more than five fields".to_owned());
    }
    Ok(Request::new(
        kind,
        devices.number(device)?,
        offset,
        length,
        time,
    ))
}

/// Nanoseconds, process number and name, sector, sectors, R or W, major and minor number of the
/// device, a hash of the content.
pub fn fiu(mut fields: Fields<'_>, devices: &mut Devices) -> Line {
    let time = fields.number("time")?;
    fields.number("process")?;
    fields.need("name")?;
    let (offset, length) = (
        fields.scaled("sector", SECTOR)?,
        fields.scaled("size", SECTOR)?,
    );
    let kind = match fields.need("type")? {
        b"R" => Kind::Read,
        b"W" => Kind::Write,
        other => return Err(format!("the type is '{}'", show(other))),
    };
    let (major, minor) = (
        fields.number("major number")?,
        fields.number("minor number")?,
    );
    Ok(Request::new(
        kind,
        devices.number(format!("{major},{minor}").as_bytes())?,
        offset,
        length,
        time,
    ))
}
