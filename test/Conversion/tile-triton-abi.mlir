// Triton's two scratch pointers, after whatever a kernel takes.
// RUN: kdac-opt %s --tile-triton-abi | FileCheck %s

// CHECK-LABEL: llvm.func @kernel(
// CHECK-SAME: %{{.*}}: !llvm.ptr<1> {llvm.noalias}, %{{.*}}: i64, %{{.*}}: !llvm.ptr<1>, %{{.*}}: !llvm.ptr<1>)
// CHECK-SAME: kdac.abi = "triton-2scratch"
llvm.func @kernel(%q: !llvm.ptr<1> {llvm.noalias}, %n: i64) attributes {nvvm.kernel} {
  llvm.store %n, %q : i64, !llvm.ptr<1>
  llvm.return
}

// CHECK-LABEL: llvm.func @bare(
// CHECK-SAME: attributes {kdac.abi = "triton-2scratch", nvvm.kernel}
llvm.func @bare() attributes {nvvm.kernel} {
  llvm.return
}

// What is no kernel keeps its parameters.
// CHECK-LABEL: llvm.func @helper(
// CHECK-SAME: %{{.*}}: i64) -> i64 {
llvm.func @helper(%n: i64) -> i64 {
  llvm.return %n : i64
}
