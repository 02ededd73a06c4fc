/* SPDX-License-Identifier: BSD-2-Clause */
/* words.c - the specification's names for classes, methods, attributes and statuses (IBTA 13.4, 14,
 * 15). */
#include <endian.h>
#include <stdio.h>

#pragma GCC visibility push(default)
#include <infiniband/umad_str.h>
#pragma GCC visibility pop

struct word {
	uint16_t value;
	const char *name;
};

static const char *find(const struct word *words, size_t count, unsigned int value)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (words[i].value == value)
			return words[i].name;
	return NULL;
}

#define FIND(words, value) find(words, sizeof(words) / sizeof((words)[0]), value)
#define UNKNOWN "<unknown>"

enum {
	CLASS_SUBN = 0x01,
	CLASS_SUBN_ADM = 0x03,
	CLASS_COM_MGT = 0x07,
	CLASS_SUBN_DIRECTED = 0x81,
};

const char *umad_class_str(uint8_t mgmt_class)
{
	static const struct word words[] = {
		{CLASS_SUBN, "Subn"},	 {CLASS_SUBN_ADM, "SubnAdm"},
		{0x04, "Perf"},		 {0x05, "BM"},
		{0x06, "DevMgt"},	 {CLASS_COM_MGT, "ComMgt"},
		{0x08, "SNMP"},		 {0x10, "DevAdm"},
		{0x11, "BootMgt"},	 {0x12, "BIS"},
		{0x21, "CongestionMgt"}, {CLASS_SUBN_DIRECTED, "Subn"},
	};
	const char *name = FIND(words, mgmt_class);

	if (name)
		return name;
	if ((mgmt_class >= 0x09 && mgmt_class <= 0x0f) ||
	    (mgmt_class >= 0x30 && mgmt_class <= 0x4f))
		return "Vendor";
	return mgmt_class >= 0x10 && mgmt_class <= 0x2f ? "Application" : UNKNOWN;
}

const char *umad_method_str(uint8_t mgmt_class, uint8_t method)
{
	static const struct word common[] = {
		{0x01, "Get"},	  {0x02, "Set"},	 {0x03, "Send"},    {0x05, "Trap"},
		{0x06, "Report"}, {0x07, "TrapRepress"}, {0x81, "GetResp"}, {0x86, "ReportResp"},
	};
	static const struct word administration[] = {
		{0x12, "GetTable"},   {0x13, "GetTraceTable"}, {0x14, "GetMulti"},
		{0x15, "Delete"},     {0x92, "GetTableResp"},  {0x94, "GetMultiResp"},
		{0x95, "DeleteResp"},
	};
	const char *name = FIND(common, method);

	if (!name && mgmt_class == CLASS_SUBN_ADM)
		name = FIND(administration, method);
	return name ? name : UNKNOWN;
}

static const char *management_attribute(unsigned int id)
{
	static const struct word words[] = {
		{0x10, "NodeDescription"},
		{0x11, "NodeInfo"},
		{0x12, "SwitchInfo"},
		{0x14, "GUIDInfo"},
		{0x15, "PortInfo"},
		{0x16, "P_KeyTable"},
		{0x17, "SLtoVLMappingTable"},
		{0x18, "VLArbitrationTable"},
		{0x19, "LinearForwardingTable"},
		{0x1a, "RandomForwardingTable"},
		{0x1b, "MulticastForwardingTable"},
		{0x1c, "LinkSpeedWidthPairsTable"},
		{0x1d, "VendorSpecificMadsTable"},
		{0x1e, "HierarchyInfo"},
		{0x20, "SMInfo"},
		{0x30, "VendorDiag"},
		{0x31, "LedInfo"},
		{0x32, "CableInfo"},
		{0x33, "PortInfoExtended"},
	};

	return FIND(words, id);
}

static const char *administration_attribute(unsigned int id)
{
	static const struct word words[] = {
		{0x11, "NodeRecord"},
		{0x12, "PortInfoRecord"},
		{0x13, "SLtoVLMappingTableRecord"},
		{0x14, "SwitchInfoRecord"},
		{0x15, "LinearForwardingTableRecord"},
		{0x16, "RandomForwardingTableRecord"},
		{0x17, "MulticastForwardingTableRecord"},
		{0x18, "SMInfoRecord"},
		{0x19, "LinkSpeedWidthPairsTableRecord"},
		{0x20, "LinkRecord"},
		{0x30, "GuidInfoRecord"},
		{0x31, "ServiceRecord"},
		{0x33, "P_KeyTableRecord"},
		{0x35, "PathRecord"},
		{0x36, "VLArbitrationTableRecord"},
		{0x38, "MCMemberRecord"},
		{0x39, "TraceRecord"},
		{0x3a, "MultiPathRecord"},
		{0x3b, "ServiceAssociationRecord"},
		{0x3c, "HierarchyInfoRecord"},
		{0x3d, "CableInfoRecord"},
		{0x3e, "PortInfoExtendedRecord"},
		{0xf3, "InformInfoRecord"},
	};

	return FIND(words, id);
}

static const char *communication_attribute(unsigned int id)
{
	static const struct word words[] = {
		{0x10, "ConnectRequest"},
		{0x11, "MsgRcptAck"},
		{0x12, "ConnectReject"},
		{0x13, "ConnectReply"},
		{0x14, "ReadyToUse"},
		{0x15, "DisconnectRequest"},
		{0x16, "DisconnectReply"},
		{0x17, "ServiceIDResReq"},
		{0x18, "ServiceIDResReqResp"},
		{0x19, "LoadAlternatePath"},
		{0x1a, "AlternatePathResponse"},
		{0x1b, "SuggestAlternatePath"},
		{0x1c, "SuggestPathResponse"},
	};

	return FIND(words, id);
}

const char *umad_attribute_str(uint8_t mgmt_class, __be16 attr_id)
{
	static const struct word common[] = {
		{0x01, "ClassPortInfo"},
		{0x02, "Notice"},
		{0x03, "InformInfo"},
	};
	unsigned int id = be16toh(attr_id);
	const char *name = FIND(common, id);

	if (!name && (mgmt_class == CLASS_SUBN || mgmt_class == CLASS_SUBN_DIRECTED))
		name = management_attribute(id);
	if (!name && mgmt_class == CLASS_SUBN_ADM)
		name = administration_attribute(id);
	if (!name && mgmt_class == CLASS_COM_MGT)
		name = communication_attribute(id);
	return name ? name : UNKNOWN;
}

/* IBTA 13.4.7: bit 0 busy, bit 1 redirect, bits 4-2 an invalid field. */
const char *umad_common_mad_status_str(__be16 status)
{
	static const struct word invalid[] = {
		{1, "Bad version"},
		{2, "Method not supported"},
		{3, "Method/attribute combination not supported"},
		{7, "Invalid attribute or modifier field"},
	};
	unsigned int value = be16toh(status);
	const char *name;

	if (value & 1)
		return "Busy";
	if (value & 2)
		return "Redirection required";
	name = FIND(invalid, value >> 2 & 7);
	return name ? name : "Success";
}

/* IBTA 15.2.4: the class's part of the status, bits 15-8. */
const char *umad_sa_mad_status_str(__be16 status)
{
	static const char *const words[] = {
		"Success",
		"No resources",
		"Invalid request",
		"No records",
		"Too many records",
		"Invalid GID",
		"Insufficient components",
		"Request denied",
		"Priority suggested",
	};
	unsigned int value = be16toh(status) >> 8;

	return value < sizeof(words) / sizeof(words[0]) ? words[value] : "Undefined error";
}
