// Promises: what a pack says about each kernel: everything a launch needs, so
// that the runtime computes none of it. Does not: hold image bytes, touch
// files, or depend on LLVM.
#ifndef KDAC_PACK_MANIFEST_H
#define KDAC_PACK_MANIFEST_H

#include "kdac/Pack/SizeExpr.h"
#include "kdac/Runtime/Status.h"
#include "kdac/Variant/LaunchAbi.h"
#include "kdac/Variant/Variant.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kdac {

enum class ImageKind {
  Ptx,    ///< PTX text
  Cubin,  ///< GPU machine code
  HostSo, ///< an ELF shared object with one host entry
};

/// One image of the image table.
struct Image {
  ImageKind kind = ImageKind::Ptx;
  std::string arch;    ///< sm_90a, x86-64-v3, x86-64-v4, aarch64, ...
  uint64_t offset = 0; ///< from the start of the images, a multiple of 64
  uint64_t size = 0;   ///< bytes
  std::string sha256;  ///< 64 hexadecimal digits
};

/// One argument and what the kernel relies on.
struct LaunchArg {
  Arg arg;
  /// Pointers: the address is a multiple of this many bytes. Strides: the value
  /// is a multiple of this many elements. 1 where nothing is relied on.
  int64_t alignment = 1;
};

/// One kernel launch.
struct Launch {
  std::string entry;           ///< the symbol in every image
  std::vector<LaunchArg> args; ///< ABI order
  /// GPU only: what the kernel takes after them.
  LaunchAbi abi = LaunchAbi::Bare;
  /// Number of program instances, flat on x, as a size expression over the
  /// call's N, T, H, HV and the variant's K, V (SizeExpr.h); `checked` is 1 in
  /// a call with a status word, else 0, `committed` in one with accepted
  /// counts; `sms` are the GPU's multiprocessors, 1 on the host, `clusters` how
  /// many of the variant's widest clusters run at once, 0 where it has none. A
  /// launch of no instances does not happen.
  std::string grid;
  /// Where not empty, over the same names: the launch belongs to a schedule, of
  /// which a variant may hold several, and only happens where this is not 0.
  /// Launches of one schedule have equal text.
  std::string when;
  bool usesWorkspace = false; ///< the variant's
  /// GPU only: may start while the launch before it in the call still runs; it
  /// waits itself (programmatic dependent launch).
  bool overlaps = false;
  int64_t blockThreads = 1; ///< GPU only
  /// GPU only: waits by itself for the kernels ahead of it before it reads a
  /// token or writes anything, so that it may be launched before they have
  /// ended.
  bool waits = false;
  int64_t sharedBytes = 0;  ///< GPU only: dynamic shared memory
  int64_t scratchBytes = 0; ///< host only: 64-byte aligned, per thread
  int64_t registers = 0;    ///< GPU only: per thread, as ptxas reports
  int64_t spillBytes = 0;   ///< GPU only: stores and loads, as ptxas reports
  std::string ptxSha256;    ///< of the PTX the cubin was made from; PackWriter
                            ///< takes it from a PTX image where it is empty
  std::vector<size_t> images; ///< indices into the image table
};

/// One variant of a pack.
struct PackVariant {
  Variant variant;          ///< resolved
  std::string schedule;     ///< the schedule attribute as text
  std::string llvmVersion;  ///< of the code generator
  std::string ptxasVersion; ///< of the assembler, or empty
  /// Bytes of scratch in device memory that the caller brings to a call one of
  /// whose launches uses it, as a size expression over N, HV and tokens (all
  /// tokens of the call); empty: none.
  std::string workspace;
  std::vector<Launch> launches; ///< in order; each waits for the one before
  /// What the expressions of this variant call by name.
  NamedSizes sizes = {};

  std::string name() const { return variantName(variant); }
};

/// The whole manifest.
struct Manifest {
  std::vector<PackVariant> variants; ///< sorted by name
  std::vector<Image> images;
};

/// The images of a launch, for people: "cubin:sm_90a ptx:sm_90a".
std::string spellImages(const Manifest &manifest, const Launch &launch);

/// The version of the format this library writes; it reads every one up to it
/// (docs/RUNTIME.md, "Versions").
constexpr uint32_t packVersion = 3;

/// kernelArgs(variant) with the alignments every kdac kernel relies on: 16
/// bytes for pointers, except offsets (their element); a stride keeps each
/// contiguous line of a token at a multiple of gcd(16, bytes of a line).
std::vector<LaunchArg> launchArgs(const Variant &variant);

/// "N * HV * ceildiv(V, vTile)": one instance per sequence, value head and
/// slice.
std::string gridExpr(int64_t vTile);

std::string_view spell(ImageKind);

/// Canonical JSON: sorted keys, no spaces; equal manifests give equal text.
std::string toJson(const Manifest &manifest);
/// A manifest of a pack of `version` from JSON of any origin; errors name the
/// path of the field.
StatusOr<Manifest> manifestFromJson(std::string_view text,
                                    uint32_t version = packVersion);

/// Canonical JSON of a resolved variant, and back.
std::string toJson(const Variant &variant);
StatusOr<Variant> variantFromJson(std::string_view text);

} // namespace kdac

#endif // KDAC_PACK_MANIFEST_H
